// Builds the command line and maps what happens to exit statuses.
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/outcome.h"
#include "tokenizer/sentencepiece_trainer.h"
#include "util/file.h"
#include "util/memory.h"
#include "util/version.h"

namespace {

using transnormer::ExitStatus;
namespace cli = transnormer::cli;

// The library says only that a command is missing where it does not know the one given.
std::string describe(const CLI::App& app, const CLI::ParseError& error) {
  const std::vector<std::string> rest = app.remaining();
  const bool unknown = app.get_subcommands().empty() && !rest.empty();
  return unknown ? "there is no command \"" + rest.front() + "\"" : error.what();
}

}  // namespace

int main(int argc, char** argv) {
  if (transnormer::is_sentencepiece_worker(argc, argv)) {
    return transnormer::run_sentencepiece_worker(argv);
  }
  transnormer::reserve_standard_streams();
  transnormer::keep_freed_memory();
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
    return cli::finish(run());
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {  // --help and --version
      app.exit(error);
      return cli::finish(ExitStatus::done);
    }
    return cli::fail(ExitStatus::user_fault, describe(app, error) + " (see --help)");
  } catch (...) {
    return cli::fail_with_exception();
  }
}
