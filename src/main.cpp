// Builds the command line and maps what happens to exit statuses.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <cstdlib>
#include <exception>
#include <span>

#include "cli/commands.h"
#include "cli/outcome.h"
#include "cli/usage.h"
#include "util/file.h"
#include "util/memory.h"
#include "util/signal.h"
#include "util/version.h"

namespace {

using transnormer::ExitStatus;
namespace cli = transnormer::cli;

// What no one caught, in whatever thread.
[[noreturn]] void end_at_once() {
  std::_Exit(std::current_exception() ? cli::fail_with_exception() : cli::fail_without_reason());
}

// The process in which main() runs; 0 once it returned.
std::atomic<pid_t> running{0};

// A library that ends the program by itself has told why, but not what is to be done. OpenMP does
// so where it is refused a thread.
void explain_end() {
  if (running == ::getpid()) {
    std::_Exit(
        cli::fail(ExitStatus::user_fault,
                  "a library ended the program, as it does where a limit of the system is "
                  "met; raise the limits (ulimit -u, -v and -s) or set train.threads lower"));
  }
}

int run_command_line(int argc, char** argv) {
  CLI::App app{"Trains, evaluates and compares linear-attention language models.", "transnormer"};
  app.require_subcommand(1);
  app.set_version_flag("--version", transnormer::program_version());
  cli::Run run;
  for (const auto add : {cli::add_train, cli::add_eval, cli::add_generate, cli::add_prepare,
                         cli::add_tokenizer, cli::add_config, cli::add_inspect, cli::add_bench}) {
    add(app, run);
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return cli::answer(app, error, std::span(argv, static_cast<std::size_t>(argc)));
  }
  return cli::finish(run());
}

int run_guarded(int argc, char** argv) {
  try {
    return run_command_line(argc, argv);
  } catch (...) {
    return cli::fail_with_exception();
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::set_terminate(end_at_once);
  transnormer::reserve_standard_streams();
  transnormer::outlive_refused_writes();
  transnormer::keep_freed_memory();
  running = ::getpid();
  std::atexit(explain_end);
  const int status = run_guarded(argc, argv);
  running = 0;
  return status;
}
