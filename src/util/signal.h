// What the user asks of a running command by signals: SIGINT and SIGTERM stop it after saving, a
// second SIGINT stops it at once (status 130), SIGUSR1 saves and goes on.
#pragma once

#include <optional>

#include "util/error.h"

namespace transnormer {

// Makes what cannot be written (a pipe that nobody reads any more, a file beyond `ulimit -f`) an
// error of writing rather than the end of the process. For the whole process, at its start.
void outlive_refused_writes();

// Installs the handlers, and lets the signals through that whoever started this process has held
// back until then. Called once, by commands that can stop gracefully.
void install_signal_handlers();

// The status to exit with, once a stop was asked for.
[[nodiscard]] std::optional<ExitStatus> stop_requested();

// Throws StoppedError once a stop was asked for: what long work without a result calls on the way.
void throw_if_stopped();

// True once for each SIGUSR1 (several before a call count as one).
[[nodiscard]] bool take_save_request();

}  // namespace transnormer
