// How the program ends: exit statuses, and one line on stderr for each fault.
#pragma once

#include <string>

#include "util/error.h"

namespace transnormer::cli {

// Writes the line, and gives the status as a number.
int fail(ExitStatus status, const std::string& message);

// The same for the exception that is being handled.
int fail_with_exception();

// The same where there is none.
int fail_without_reason();

// The end of a command that failed in no way. An answer that did not arrive (a full disk) is no
// success, unless its reader had enough and closed the pipe.
int finish(ExitStatus status);

}  // namespace transnormer::cli
