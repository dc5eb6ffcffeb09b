// Builds the command line and maps what happens to exit statuses.
#include <CLI/CLI.hpp>
#include <span>

#include "cli/commands.h"
#include "cli/outcome.h"
#include "cli/usage.h"
#include "dist/local_processes.h"
#include "ops/trust/trial_process.h"
#include "tokenizer/sentencepiece_trainer.h"
#include "util/file.h"
#include "util/memory.h"
#include "util/signal.h"
#include "util/version.h"

namespace {

namespace cli = transnormer::cli;

int run_command_line(int argc, char** argv) {
  CLI::App app{"Trains, evaluates and compares linear-attention language models.", "transnormer"};
  app.require_subcommand(1);
  app.set_version_flag("--version", transnormer::program_version());
  cli::Run run;
  for (const auto add :
       {cli::add_train, cli::add_eval, cli::add_generate, cli::add_prepare, cli::add_tokenizer,
        cli::add_config, cli::add_inspect, cli::add_bench, cli::add_analyze, cli::add_average,
        cli::add_export, cli::add_completion, cli::add_manual}) {
    add(app, run);
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return cli::answer(app, error, std::span(argv, static_cast<std::size_t>(argc)));
  }
  return cli::finish(run());
}

}  // namespace

int main(int argc, char** argv) {
  if (transnormer::ops::is_kernel_trial(argc, argv)) {
    return transnormer::ops::run_kernel_trial(argv);
  }
  if (transnormer::is_sentencepiece_worker(argc, argv)) {
    return transnormer::run_sentencepiece_worker(argv);
  }
  transnormer::dist::follow_starter();
  cli::explain_every_end();
  transnormer::reserve_standard_streams();
  transnormer::outlive_refused_writes();
  transnormer::keep_freed_memory();
  try {
    return cli::returned(run_command_line(argc, argv));
  } catch (...) {
    return cli::returned(cli::fail_with_exception());
  }
}
