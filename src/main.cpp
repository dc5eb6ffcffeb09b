// Builds the command line and maps what happens to exit statuses.
#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "util/error.h"
#include "util/file.h"
#include "util/version.h"

namespace {

using transnormer::ExitStatus;

int fail(ExitStatus status, const std::string& message) {
  std::cerr << "transnormer: " << message << '\n';
  return static_cast<int>(status);
}

// An answer that did not arrive (a full disk, a closed pipe) is no success.
int finish(ExitStatus status) {
  std::cout.flush();
  if (status == ExitStatus::done && (!std::cout || std::ferror(stdout) != 0)) {
    return fail(ExitStatus::user_fault,
                std::string("standard output: cannot be written: ") + std::strerror(errno));
  }
  return static_cast<int>(status);
}

// The library says only that a command is missing where it does not know the one given.
std::string describe(const CLI::App& app, const CLI::ParseError& error) {
  const std::vector<std::string> rest = app.remaining();
  const bool unknown = app.get_subcommands().empty() && !rest.empty();
  return unknown ? "there is no command \"" + rest.front() + "\"" : error.what();
}

}  // namespace

int main(int argc, char** argv) {
  transnormer::reserve_standard_streams();
  CLI::App app{"Trains, evaluates and compares linear-attention language models.", "transnormer"};
  app.require_subcommand(1);
  app.set_version_flag("--version", transnormer::program_version());
  transnormer::cli::Run run;
  for (const auto add :
       {transnormer::cli::add_train, transnormer::cli::add_eval, transnormer::cli::add_generate,
        transnormer::cli::add_prepare, transnormer::cli::add_tokenizer,
        transnormer::cli::add_config, transnormer::cli::add_inspect, transnormer::cli::add_bench}) {
    add(app, run);
  }
  try {
    app.parse(argc, argv);
    return finish(run());
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {  // --help and --version
      app.exit(error);
      return finish(ExitStatus::done);
    }
    return fail(ExitStatus::user_fault, describe(app, error) + " (see --help)");
  } catch (const transnormer::UserError& error) {
    for (const std::string& fault : error.faults()) {
      fail(ExitStatus::user_fault, fault);
    }
    return static_cast<int>(ExitStatus::user_fault);
  } catch (const std::filesystem::filesystem_error& error) {
    return fail(ExitStatus::user_fault, error.path1().string() + ": " + error.code().message());
  } catch (const transnormer::DivergedError& error) {
    return fail(ExitStatus::diverged, error.what());
  } catch (const std::exception& error) {
    return fail(ExitStatus::our_fault, std::string("internal error: ") + error.what());
  }
}
