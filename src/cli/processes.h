// Commands that may run as several processes.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "dist/world.h"
#include "util/error.h"

namespace transnormer::cli {

void add_nproc(CLI::App& command, std::optional<std::int64_t>& nproc);

// What a command does in each process. `prepare` comes first and reads the options. Its failure is
// told by the first process alone, as that of `work`, and ends all of them with the same status.
struct Work {
  std::function<DistributedConfig()> prepare;
  std::function<ExitStatus(dist::World&)> work;
};

struct ProcessOptions {
  std::optional<std::int64_t> nproc = {};  // --nproc
  std::vector<std::string> inputs = {};    // files that every process reads
};

// With --nproc starts so many processes and waits for them; else meets those that a launcher has
// started, or is alone. In a world of several the answer of the first is the command's.
[[nodiscard]] ExitStatus run_in_processes(const ProcessOptions& options, const Work& work);

}  // namespace transnormer::cli
