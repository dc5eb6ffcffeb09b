#include "cli/run_summary.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <sstream>

#include "checkpoint/layout.h"
#include "checkpoint/training_state.h"
#include "config/load.h"
#include "util/error.h"
#include "util/file.h"
#include "util/foreign_json.h"
#include "util/input_file.h"
#include "util/units.h"

namespace transnormer::cli {
namespace {

namespace fs = std::filesystem;

// Whether some process of this machine holds the run's lock, as the kernel lists it: to try the
// lock would be in the way of a training that starts in that moment.
bool is_held(const fs::path& lock) {
  struct stat file {};
  if (::stat(lock.c_str(), &file) != 0) {
    return false;
  }
  std::array<char, 64> place{};
  std::snprintf(place.data(), place.size(), " %02x:%02x:%llu ", ::major(file.st_dev),
                ::minor(file.st_dev), static_cast<unsigned long long>(file.st_ino));
  std::ifstream locks("/proc/locks");
  for (std::string line; std::getline(locks, line);) {
    if (line.find(" FLOCK ") != std::string::npos && line.find(place.data()) != std::string::npos) {
      return true;
    }
  }
  return false;
}

// The end of the metrics: enough for many lines, and no more of a large file.
std::string tail_of(const fs::path& path) {
  constexpr std::int64_t kMost = std::int64_t{8} << 20;
  const InputFile file(path);
  const std::int64_t size = std::min(file.size(), kMost);
  std::string bytes(static_cast<std::size_t>(size), '\0');
  file.read_at(file.size() - size, bytes.data(), bytes.size());
  return bytes;
}

// The last validation, and the last word on how the run's last process ended.
void read_metrics(const fs::path& path, RunSummary& summary) {
  std::error_code none;
  if (!fs::is_regular_file(path, none)) {
    return;
  }
  constexpr std::array kBeginnings{"started", "resumed"};
  constexpr std::array kEndings{"interrupted", "diverged", "failed", "time_limit"};
  const auto is_one_of = [](const auto& names, const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  std::istringstream lines(tail_of(path));
  for (std::string line; std::getline(lines, line);) {
    if (line.find("\"valid\"") == std::string::npos &&
        line.find("\"event\"") == std::string::npos) {
      continue;
    }
    const nlohmann::json json = parse_foreign_json(line);
    if (!json.is_object() || !json.contains("kind") || !json.contains("step") ||
        !json["step"].is_number_integer()) {
      continue;
    }
    if (json["kind"] == "valid" && json.contains("loss") && json["loss"].is_number()) {
      summary.last = {json["step"].get<std::int64_t>(), json["loss"].get<double>()};
    } else if (json.value("event", "") != "" && json.contains("message") &&
               json["message"].is_string()) {
      const std::string name = json.value("event", "");
      if (is_one_of(kBeginnings, name)) {
        summary.ending.clear();
      } else if (is_one_of(kEndings, name)) {
        summary.ending = json["message"].get<std::string>();
      }
    }
  }
}

std::int64_t time_of(const fs::path& file) {
  struct stat status {};
  return ::stat(file.c_str(), &status) == 0 ? status.st_mtime : 0;
}

std::string local_time(std::int64_t seconds) {
  const std::time_t time = seconds;
  std::tm parts{};
  std::array<char, 32> text{};
  ::localtime_r(&time, &parts);
  std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S", &parts);
  return text.data();
}

std::string standing(const RunSummary& summary) {
  if (summary.is_finished) {
    return "finished: " + summary.ending;
  }
  if (summary.is_running) {
    return "running";
  }
  return summary.ending.empty() ? "ended without a word, or runs on another machine"
                                : summary.ending;
}

std::string described(const RunSummary::Validation& validation) {
  return format_fixed(validation.loss, 4) + " at step " + format_count(validation.step);
}

nlohmann::ordered_json to_json(const std::optional<RunSummary::Validation>& validation) {
  if (!validation) {
    return nullptr;
  }
  return {{"step", validation->step}, {"loss", validation->loss}};
}

}  // namespace

std::optional<RunSummary> summary_of_run(const fs::path& directory) {
  const fs::path checkpoints = directory / kCheckpointsDirectory;
  std::error_code none;
  if (is_whole_checkpoint(directory) || !fs::is_directory(checkpoints, none)) {
    return std::nullopt;
  }
  const std::vector<std::int64_t> steps = whole_checkpoints(checkpoints);
  if (steps.empty()) {
    return std::nullopt;
  }
  const fs::path newest = checkpoints / checkpoint_name(steps.back());
  const fs::path state_file = newest / kStateFile;
  const TrainingState state = state_from_json(read_regular_file(state_file), state_file.string());
  const fs::path config_file = newest / kConfigFile;
  const Config config = parse_config(read_regular_file(config_file), config_file.string()).config;
  RunSummary summary{.name = config.run_name,
                     .step = state.step,
                     .steps = config.train.steps,
                     .tokens = state.tokens,
                     .elapsed_s = state.elapsed_s,
                     .is_finished = state.finished,
                     .is_running = is_held(directory / ".lock"),
                     .ending = {},
                     .saved_at = time_of(newest / kManifestFile),
                     .last = {},
                     .best = {}};
  read_metrics(directory / "metrics.jsonl", summary);
  if (state.finished) {
    summary.ending = state.finish_reason;
  }
  if (state.best_step >= 0) {
    summary.best = {state.best_step, state.best_valid_loss};
  }
  return summary;
}

std::string to_text(const RunSummary& summary) {
  std::string text = "run              " + summary.name + ": step " + format_count(summary.step) +
                     (summary.steps > 0 ? " of " + format_count(summary.steps) : "") + ", " +
                     standing(summary) + "\n";
  text += "trained          " + format_count(summary.tokens) + " tokens in " +
          format_duration(summary.elapsed_s) + ", last saved " + local_time(summary.saved_at) +
          "\n";
  if (summary.last || summary.best) {
    text += "validation       ";
    text += summary.last ? "last " + described(*summary.last) : "";
    text += summary.last && summary.best ? ", " : "";
    text += summary.best ? "best " + described(*summary.best) : "";
    text += " (nats a token)\n";
  }
  return text;
}

nlohmann::ordered_json to_json(const RunSummary& summary) {
  return {{"name", summary.name},
          {"step", summary.step},
          {"steps", summary.steps},
          {"tokens", summary.tokens},
          {"elapsed_s", summary.elapsed_s},
          {"finished", summary.is_finished},
          {"running", summary.is_running},
          {"ending", summary.ending},
          {"saved_at", summary.saved_at},
          {"last_validation", to_json(summary.last)},
          {"best_validation", to_json(summary.best)}};
}

}  // namespace transnormer::cli
