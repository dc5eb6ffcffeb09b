#include "cli/processes.h"

#include <c10/util/Logging.h>
#include <fcntl.h>
#include <torch/version.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <string>

#include "cli/options.h"
#include "cli/outcome.h"
#include "data/text_input.h"
#include "dist/launch.h"
#include "dist/local_processes.h"
#include "log/console.h"
#include "util/version.h"

namespace transnormer::cli {
namespace {

constexpr std::int64_t kMostProcesses = 4096;
// For the others to come and be told of a fault of the options.
constexpr std::chrono::milliseconds kForFaults{30000};

std::string identity() {
  return std::string("transnormer ") + program_version() + ", LibTorch " + TORCH_VERSION +
         ", compiler " + __VERSION__;
}

// Its messages and answers are those of the first process.
void be_silent() {
  log::show_nothing();
  const int nowhere = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  ::dup2(nowhere, STDOUT_FILENO);
  ::close(nowhere);
}

std::chrono::milliseconds timeout_of(const DistributedConfig& config) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(config.timeout_s * 1000) + 1);
}

// Of what fails there the program tells itself. Who wants to hear the engine sets the variable.
void silence_engine() {
  ::setenv("TORCH_CPP_LOG_LEVEL", "FATAL", /*overwrite=*/0);
  // Nor does anybody read its record of collectives, with a trace for each.
  ::setenv("TORCH_FR_BUFFER_SIZE", "0", /*overwrite=*/0);
  c10::initLogging();
}

// Several processes cannot read from one pipe.
void require_file(const std::string& path) {
  if (is_read_once(path)) {
    throw UserError(path +
                    ": is no regular file, and only one of several processes could read it; give "
                    "it as a file");
  }
}

// The present exception ends all processes, and is told once.
ExitStatus end_all(dist::World& world, bool is_told) {
  const Failure failure = failure_of_exception();
  if (world.is_first() && !is_told) {
    fail_with_exception();
  }
  if (!world.report(failure.status, failure.faults)) {
    for (const std::string& fault : failure.faults) {
      fail(failure.status, world.name() + ": " + fault);
    }
  }
  return failure.status;
}

// Their last word is that of the first.
ExitStatus agreed(const dist::World& world, ExitStatus status) {
  const std::string text = world.all().broadcast(std::to_string(static_cast<int>(status)), 0);
  return static_cast<ExitStatus>(std::stoi(text));
}

ExitStatus run_in_world(const dist::Launch& launch, const Work& work) {
  std::exception_ptr fault;
  std::chrono::milliseconds timeout = kForFaults;
  try {
    timeout = timeout_of(work.prepare());
  } catch (...) {
    fault = std::current_exception();
    if (launch.rank == 0) {
      fail_with_exception();
    }
  }
  dist::World world;
  try {
    world = dist::World(launch, timeout, identity());
  } catch (const dist::FirstHasFault&) {
    return ExitStatus::user_fault;
  } catch (const StoppedError& stopped) {
    if (launch.rank == 0) {
      throw;
    }
    return stopped.status();
  } catch (...) {
    if (fault && launch.rank == 0) {
      return ExitStatus::user_fault;
    }
    throw;
  }
  try {
    if (fault) {
      std::rethrow_exception(fault);
    }
    const ExitStatus status = agreed(world, work.work(world));
    std::cout.flush();  // the answer, before anything can go wrong in leaving
    world.leave();
    return status;
  } catch (const dist::CollectiveError& error) {
    world.end_by_collective(error.what());
  } catch (...) {
    return end_all(world, fault && world.is_first());
  }
}

}  // namespace

void add_nproc(CLI::App& command, std::optional<std::int64_t>& nproc) {
  add_integer(command, "--nproc", nproc, {1, kMostProcesses},
              "Start so many processes on this machine, which share the work");
}

ExitStatus run_in_processes(const ProcessOptions& options, const Work& work) {
  const dist::Launch launch = dist::resolve_launch(dist::environment());
  const bool starts = options.nproc.value_or(1) > 1 && launch.size == 1;
  if (starts || launch.size > 1) {
    silence_engine();
    std::ranges::for_each(options.inputs, require_file);
  }
  if (starts) {
    return static_cast<ExitStatus>(dist::run_local_processes(static_cast<int>(*options.nproc)));
  }
  if (launch.size == 1) {
    (void)work.prepare();
    return work.work(dist::alone());
  }
  if (options.nproc && !dist::is_local_process()) {
    throw UserError("--nproc: this is one of " + std::to_string(launch.size) + " processes by " +
                    launch.launcher +
                    " already; leave --nproc out, or start the program without that");
  }
  if (launch.rank > 0) {
    be_silent();
  }
  return run_in_world(launch, work);
}

}  // namespace transnormer::cli
