// How the program ends: exit statuses, and one line on stderr for each fault.
#pragma once

#include <string>

#include "util/error.h"

namespace transnormer::cli {

// Writes the line, and gives the status as a number.
int fail(ExitStatus status, const std::string& message);

// The same for the exception that is being handled.
int fail_with_exception();

// From here on one line explains what ends the process without main(): an exception that nobody
// catches, in whatever thread, and a library that exits. For main(), which says when it returns.
void explain_every_end();
int returned(int status);

// The end of a command that failed in no way. An answer that did not arrive (a full disk) is no
// success, unless its reader had enough and closed the pipe.
int finish(ExitStatus status);

}  // namespace transnormer::cli
