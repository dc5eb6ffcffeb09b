// How the program ends: exit statuses, and one line on stderr for each fault.
#pragma once

#include <string>
#include <vector>

#include "util/error.h"

namespace transnormer::cli {

// Writes the line, and gives the status as a number.
int fail(ExitStatus status, const std::string& message);

// What the exception that is being handled comes to.
struct Failure {
  ExitStatus status = ExitStatus::our_fault;
  std::vector<std::string> faults;  // a line each
};
[[nodiscard]] Failure failure_of_exception();

// A line for each of its faults, and the status as a number.
int fail_with_exception();

// From here on one line explains what ends the process without main(): an exception that nobody
// catches, in whatever thread, and a library that exits. For main(), which says when it returns.
void explain_every_end();
int returned(int status);

// Writes out what stdout holds so far, where more is to be done after the answer. Whether it
// arrived; finish() tells why not.
bool flush_answer();

// The end of a command that failed in no way. An answer that did not arrive (a full disk) is no
// success, unless its reader had enough and closed the pipe.
int finish(ExitStatus status);

}  // namespace transnormer::cli
