// How the program ends: exit statuses, and one line on stderr for each fault.
#pragma once

#include <string>

#include "util/error.h"

namespace transnormer::cli {

// Writes the line, and gives the status as a number.
int fail(ExitStatus status, const std::string& message);

// The same for the exception that is being handled.
int fail_with_exception();

// The end of a command that failed in no way, unless its answer did not arrive (a full disk, a
// closed pipe): that is no success.
int finish(ExitStatus status);

}  // namespace transnormer::cli
