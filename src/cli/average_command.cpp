// average: the mean of several checkpoints' weights.
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/average.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "util/signal.h"
#include "util/units.h"

namespace transnormer::cli {
namespace {

struct AverageRequest {
  std::vector<std::string> checkpoints;
  std::optional<std::int64_t> last;
  std::string out;
};

std::vector<Checkpoint> sources_of(const AverageRequest& request) {
  if (request.last) {
    if (request.checkpoints.size() != 1) {
      throw UserError("--last: expected one run directory, got " +
                      std::to_string(request.checkpoints.size()) + " paths");
    }
    return newest_checkpoints(request.checkpoints.front(), *request.last);
  }
  std::vector<Checkpoint> sources;
  for (const std::string& path : request.checkpoints) {
    sources.push_back(Checkpoint::open(path));
    throw_if_stopped();
  }
  return sources;
}

ExitStatus run_average(const AverageRequest& request) {
  install_signal_handlers();
  const std::vector<Checkpoint> sources = sources_of(request);
  const std::string path = write_average(sources, request.out).string();
  std::cout << path << ": the mean of " << format_count(std::ssize(sources))
            << (sources.size() == 1 ? " checkpoint" : " checkpoints") << '\n';
  for (const Checkpoint& source : sources) {
    std::cout << "  update " << format_count(source.state().step) << "  " << source.path().string()
              << '\n';
  }
  return ExitStatus::done;
}

}  // namespace

void add_average(CLI::App& app, Run& run) {
  CLI::App* command = app.add_subcommand("average", "The mean of several checkpoints' weights");
  auto request = std::make_shared<AverageRequest>();
  add_paths(*command, "CHECKPOINT", request->checkpoints,
            "Checkpoints, or run directories (their best one)")
      ->required();
  add_integer(*command, "--last", request->last, {.min = 1},
              "Of the last so many checkpoints of one run directory");
  add_path(*command, "--out", request->out,
           "The directory of the average: new, or that of an older one")
      ->required();
  command->callback([request, &run] { run = [request] { return run_average(*request); }; });
}

}  // namespace transnormer::cli
