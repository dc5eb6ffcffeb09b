// Answers a command line that asks for help or cannot be followed.
#pragma once

#include <CLI/CLI.hpp>
#include <span>

namespace transnormer::cli {

// `error` is what parsing `arguments` ended with. Help goes to stdout; a fault is one line that
// names the command, option or key that was probably meant. Returns the exit status.
int answer(const CLI::App& app, const CLI::ParseError& error,
           std::span<const char* const> arguments);

}  // namespace transnormer::cli
