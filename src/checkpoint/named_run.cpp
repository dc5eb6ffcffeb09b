#include "checkpoint/named_run.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <vector>

#include "checkpoint/layout.h"
#include "checkpoint/manifest.h"
#include "config/json_tree.h"
#include "util/error.h"
#include "util/file.h"
#include "util/units.h"

namespace transnormer {
namespace fs = std::filesystem;
namespace {

bool is_resolved(const std::string& text) {
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("run_name")) {
    return false;
  }
  constexpr std::array kSections{"model", "data", "tokenizer", "optimizer", "schedule", "train"};
  return std::ranges::all_of(kSections, [&json](const char* section) {
    return json.contains(section) && json[section].is_object();
  });
}

bool is_json(const std::string& text) {
  try {
    std::vector<Fault> doubled;
    (void)parse_json(text, kConfigFile, doubled);
    return true;
  } catch (const UserError&) {
    return false;
  }
}

// Whole checkpoints, or a config beside the metrics that only a run writes.
bool is_run(const fs::path& directory) {
  return !whole_checkpoints(directory / kCheckpointsDirectory).empty() ||
         (has_entry(directory / kMetricsFile) &&
          look_at_config(directory) == RunConfigFile::resolved);
}

// The config in the newest checkpoint that is whole.
NamedRun by_checkpoint(const fs::path& directory, const std::string& why) {
  const fs::path checkpoints = directory / kCheckpointsDirectory;
  std::vector<std::int64_t> steps = whole_checkpoints(checkpoints);
  std::reverse(steps.begin(), steps.end());
  for (const std::int64_t step : steps) {
    const fs::path checkpoint = checkpoints / checkpoint_name(step);
    try {
      (void)open_verified(checkpoint, read_manifest(checkpoint), {kConfigFile});
    } catch (const DamagedCheckpointError&) {
      continue;
    }
    const fs::path config = checkpoint / kConfigFile;
    return {directory, config,
            why + "; going by the config of the newest whole checkpoint, " + config.string() +
                ": what was set since is not known"};
  }
  throw UserError(why + ", and no checkpoint of this run is whole; name the config that it was " +
                  "trained with, and another --run-dir");
}

NamedRun of_run(const fs::path& directory) {
  const fs::path config = directory / kConfigFile;
  switch (look_at_config(directory)) {
    case RunConfigFile::resolved:
      return {directory, config};
    case RunConfigFile::missing:
      return by_checkpoint(directory, config.string() + ": is not there");
    case RunConfigFile::damaged:
      return by_checkpoint(directory, config.string() + ": is damaged");
    case RunConfigFile::other:
      break;
  }
  throw UserError(config.string() +
                  ": is not the config of the run in this directory, which would have every key "
                  "spelled out; remove it, and that of the newest checkpoint is taken");
}

}  // namespace

RunConfigFile look_at_config(const fs::path& run_dir) {
  const fs::path file = run_dir / kConfigFile;
  if (!has_entry(file)) {
    return RunConfigFile::missing;
  }
  const std::string text = read_regular_file(file);
  if (is_resolved(text)) {
    return RunConfigFile::resolved;
  }
  return is_json(text) ? RunConfigFile::other : RunConfigFile::damaged;
}

std::optional<NamedRun> named_run(const fs::path& named) {
  std::error_code none;
  if (!fs::is_directory(named, none)) {
    const fs::path directory = named.has_parent_path() ? named.parent_path() : ".";
    const bool is_named_so = named.filename() == kConfigFile;
    return is_named_so && is_run(directory) ? std::optional(of_run(directory)) : std::nullopt;
  }
  if (is_whole_checkpoint(named)) {
    throw UserError(named.string() +
                    ": a checkpoint; expected a config or a run directory. --resume goes on from a "
                    "checkpoint, --init-from starts a new run with its weights");
  }
  if (!is_run(named)) {
    throw UserError(named.string() +
                    ": a directory that holds no run (config.json, metrics.jsonl, checkpoints/); "
                    "expected a run directory or the file of a config");
  }
  return of_run(named);
}

}  // namespace transnormer
