#include "train/resume.h"

#include <ATen/Parallel.h>
#include <torch/version.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <set>

#include "config/load.h"
#include "config/names.h"
#include "config/splits.h"
#include "ops/trust/trust.h"
#include "optim/schedule.h"
#include "train/ending.h"
#include "train/soundness.h"
#include "util/error.h"
#include "util/file.h"
#include "util/units.h"
#include "util/version.h"

namespace transnormer {
namespace fs = std::filesystem;
namespace {

std::string amid_skips(const Checkpoint& checkpoint) {
  return "the checkpoint of step " + format_count(checkpoint.state().step) +
         " was saved after skipped updates, by an earlier version";
}

fs::path absolute_place(const fs::path& path) {
  return resolve_path(fs::absolute(path));
}

StartingPoint named(const fs::path& path, const RunDirectory& directory) {
  StartingPoint start{.checkpoint = Checkpoint::open(path)};
  const bool is_fork =
      !is_below(absolute_place(start.checkpoint->path()), absolute_place(directory.path()));
  start.is_fork = is_fork;
  start.way_to_start_anew =
      is_fork ? "leave --resume out" : "leave --resume out and choose another --run-dir";
  start.way_to_go_on = "train " + directory.path().string();
  if (is_amid_skips(start.checkpoint->state())) {
    start.warnings.push_back(amid_skips(*start.checkpoint) + "; going on from it");
  }
  if (is_fork && !directory.checkpoint_steps().empty()) {
    throw UserError(directory.path().string() + ": holds a run of its own, which starting from " +
                    path.string() + " would overwrite; go on with it by train " +
                    directory.path().string() + ", or choose another --run-dir");
  }
  return start;
}

bool is_place_of_a_file(const std::string& key) {
  return key == "data.train" || key == "tokenizer.path";
}

// Values may be long lists of files.
std::string shortened(const std::string& value) {
  constexpr std::size_t kLongest = 160;
  return value.size() > kLongest ? value.substr(0, kLongest) + ".." : value;
}

std::string describe(const ConfigChange& change, const LoadedConfig& loaded) {
  const auto origin = loaded.origins.find(change.key);
  return change.key + ": " + shortened(change.before) + " -> " + shortened(change.after) +
         (origin == loaded.origins.end() ? "" : " (" + origin->second + ")");
}

std::string to_train_anew(const StartingPoint& start) {
  return start.way_to_start_anew + " to train anew (with its weights: --init-from " +
         start.checkpoint->path().string() + ")";
}

// data.valid may change, but not whether a part of data.train stands for it.
std::optional<std::string> moved_holdout(const DataConfig& saved, const DataConfig& now) {
  const bool was_held_out = held_out_share(saved) > 0;
  if (saved.holdout != now.holdout || was_held_out == (held_out_share(now) > 0)) {
    return std::nullopt;
  }
  return was_held_out
             ? "data.valid: is given now, and was not when it was saved, so that "
               "data.holdout kept a part of data.train, which a resumed run must not "
               "train on; leave data.valid out"
             : "data.valid: was given when it was saved, so that data.holdout took nothing "
               "from data.train; give it again";
}

bool is_cause_of_rate(const std::string& key) {
  return key == "optimizer.lr" || key == "train.steps" || key == "train.max_epochs" ||
         key.starts_with("schedule.");
}

std::optional<std::string> jump_of_rate(const Config& saved, const Config& config,
                                        std::int64_t step, std::int64_t samples) {
  const auto rate = [&](const Config& of) {
    return learning_rate(of.schedule, of.optimizer.lr, step, total_steps(of.train, samples));
  };
  const std::string before = format_significant(rate(saved));
  const std::string after = format_significant(rate(config));
  if (before == after) {
    return std::nullopt;
  }
  std::string causes;
  for (const ConfigChange& change : config_changes(saved, config)) {
    if (is_cause_of_rate(change.key)) {
      causes += (causes.empty() ? "" : ", ") + change.key;
    }
  }
  return "the learning rate jumps at step " + format_count(step) + ": " + before +
         " when it was saved, " + after + " now (changed: " + causes + ")";
}

std::optional<std::string> change_of_end(const Config& saved, const Config& config,
                                         std::int64_t samples) {
  const std::int64_t before = total_steps(saved.train, samples);
  const std::int64_t after = total_steps(config.train, samples);
  if (before == after || !falls_towards_the_end(config.schedule.name)) {
    return std::nullopt;
  }
  return std::string("schedule.name \"") +
         name_of<ScheduleKind>(kScheduleNames, config.schedule.name) +
         "\" falls towards the end of training, which was update " + format_count(before) +
         " and is " + format_count(after) +
         " now: the learning rates are not those of a run planned so from the start";
}

std::string build_description(const at::Device& device) {
  return std::string("transnormer ") + program_version() + ", LibTorch " + TORCH_VERSION +
         ", compiler " + __VERSION__ + ", kernels " + ops::describe_kernels(device);
}

}  // namespace

StartingPoint newest_sound(const RunDirectory& directory, std::int64_t most) {
  StartingPoint start;
  std::optional<Checkpoint> unsound;  // the newest that was saved amid skipped updates
  std::vector<std::string> passed_over;
  std::string newest_fault;
  std::vector<std::int64_t> steps = directory.checkpoint_steps();
  steps.erase(std::upper_bound(steps.begin(), steps.end(), most), steps.end());
  std::reverse(steps.begin(), steps.end());
  for (const std::int64_t step : steps) {
    try {
      Checkpoint checkpoint = Checkpoint::open(directory.checkpoint_path(step));
      if (!is_amid_skips(checkpoint.state())) {
        start.checkpoint = std::move(checkpoint);
        start.warnings.insert(start.warnings.end(), passed_over.begin(), passed_over.end());
        return start;
      }
      passed_over.push_back(amid_skips(checkpoint) +
                            "; the one before it is tried, and this one goes with what was logged "
                            "after that");
      if (!unsound) {
        unsound = std::move(checkpoint);
      }
    } catch (const DamagedCheckpointError& error) {
      if (newest_fault.empty()) {
        newest_fault = error.what();
      }
      start.damaged.push_back(step);
      start.warnings.push_back("the checkpoint of step " + format_count(step) +
                               " is set aside as .damaged-" +
                               directory.checkpoint_path(step).filename().string() +
                               ", the one before it is tried: " + error.what());
    }
  }
  if (unsound) {
    start.warnings.push_back(amid_skips(*unsound) +
                             ", and so were all before it; going on from it");
    start.checkpoint = std::move(unsound);
    return start;
  }
  if (!newest_fault.empty()) {
    throw UserError(directory.path().string() +
                    ": all of its checkpoints are damaged; choose another --run-dir to start "
                    "anew. Of the newest: " +
                    newest_fault);
  }
  return start;
}

StartingPoint choose_start(const TrainRequest& request, const RunDirectory& directory) {
  switch (request.resume) {
    case ResumeMode::automatic:
      return newest_sound(directory, std::numeric_limits<std::int64_t>::max());
    case ResumeMode::never:
      if (directory.holds_a_run()) {
        throw UserError(directory.path().string() +
                        ": holds a run, and --resume never starts anew; choose another --run-dir "
                        "or leave it out to go on with that run");
      }
      return {.way_to_go_on = "train " + directory.path().string()};
    case ResumeMode::checkpoint:
      return named(request.resume_from, directory);
  }
  return {};
}

void record_environment(TrainingState& state, at::Device device, std::int64_t ranks) {
  state.ranks = ranks;
  state.threads = at::get_num_threads();
  state.device = c10::DeviceTypeName(device.type(), /*lower_case=*/true);
  state.build = build_description(device);
}

std::vector<std::string> compare_settings(const StartingPoint& start, const LoadedConfig& loaded,
                                          const TrainingState& now) {
  const Checkpoint& checkpoint = *start.checkpoint;
  if (checkpoint.is_average()) {
    throw UserError(checkpoint.path().string() +
                    ": an average of weights, without an optimizer's state to go on with; start "
                    "from its weights by --init-from");
  }
  std::vector<std::string> warnings;
  std::vector<std::string> faults;
  for (const ConfigChange& change : config_changes(checkpoint.config(), loaded.config)) {
    if (is_place_of_a_file(change.key)) {
      continue;
    }
    if (change.on_resume == OnResume::warn) {
      warnings.push_back(describe(change, loaded));
    } else if (change.on_resume == OnResume::refuse) {
      faults.push_back(describe(change, loaded) +
                       ", and a resumed run must not change it; undo that or " +
                       to_train_anew(start));
    }
  }
  if (const auto fault = moved_holdout(checkpoint.config().data, loaded.config.data)) {
    faults.push_back(*fault);
  }
  if (!faults.empty()) {
    throw UserError(faults);
  }
  const TrainingState& saved = checkpoint.state();
  const auto compare = [&warnings](const char* what, const std::string& before,
                                   const std::string& after) {
    if (before != after) {
      warnings.push_back(std::string(what) + ": " + before + " when it was saved, " + after +
                         " now; results may differ in the last bits");
    }
  };
  compare("ranks", std::to_string(saved.ranks), std::to_string(now.ranks));
  compare("threads", std::to_string(saved.threads), std::to_string(now.threads));
  compare("device", saved.device, now.device);
  compare("build", saved.build, now.build);
  return warnings;
}

std::vector<std::string> told_changes(const StartingPoint& start,
                                      const std::optional<Config>& last_start,
                                      const LoadedConfig& loaded) {
  std::set<std::string> done{"run_name"};
  std::vector<std::string> told;
  if (start.checkpoint) {
    for (const ConfigChange& change : config_changes(start.checkpoint->config(), loaded.config)) {
      const bool is_new = done.insert(change.key).second;
      if (is_new && (change.on_resume == OnResume::silent || is_place_of_a_file(change.key))) {
        told.push_back(describe(change, loaded));
      }
    }
  }
  if (last_start) {
    for (const ConfigChange& change : config_changes(*last_start, loaded.config)) {
      if (done.insert(change.key).second) {
        told.push_back(describe(change, loaded));
      }
    }
  }
  return told;
}

std::shared_ptr<const Tokenizer> same_tokenizer(const StartingPoint& start, const Config& config) {
  const Checkpoint& checkpoint = *start.checkpoint;
  const std::string& path = config.tokenizer.path;
  if (!path.empty() && load_tokenizer(path)->digest() != checkpoint.tokenizer()->digest()) {
    throw UserError("tokenizer.path: " + path + " is not the tokenizer that " +
                    checkpoint.path().string() +
                    " was trained with; set it to \"\" to take that one, or " +
                    start.way_to_start_anew + " to train anew");
  }
  return checkpoint.tokenizer();
}

void require_same_data(const StartingPoint& start, const std::string& train_data_digest) {
  const Checkpoint& checkpoint = *start.checkpoint;
  if (checkpoint.state().train_data_digest != train_data_digest) {
    throw UserError("data.train: its text is not the one that " + checkpoint.path().string() +
                    " was trained with; name that one or " + to_train_anew(start));
  }
}

std::optional<std::string> change_of_rate(const Config& saved, const Config& config,
                                          std::int64_t step, std::int64_t samples) {
  const auto jump = jump_of_rate(saved, config, step, samples);
  const auto end = change_of_end(saved, config, samples);
  if (jump && end) {
    return *jump + "; " + *end;
  }
  return jump ? jump : end;
}

bool learns_otherwise(const Config& saved, const Config& config) {
  const std::vector<ConfigChange> changes = config_changes(saved, config);
  return std::any_of(changes.begin(), changes.end(), [](const ConfigChange& change) {
    return (change.key.starts_with("optimizer.") && change.key != "optimizer.ema") ||
           change.key.starts_with("schedule.");
  });
}

}  // namespace transnormer
