#include "train/resume.h"

#include <ATen/Parallel.h>
#include <torch/version.h>

#include <algorithm>
#include <filesystem>

#include "config/load.h"
#include "util/error.h"
#include "util/units.h"
#include "util/version.h"

namespace transnormer {
namespace fs = std::filesystem;
namespace {

StartingPoint newest_sound(const RunDirectory& directory) {
  StartingPoint start;
  std::string newest_fault;
  std::vector<std::int64_t> steps = directory.checkpoint_steps();
  std::reverse(steps.begin(), steps.end());
  for (const std::int64_t step : steps) {
    try {
      start.checkpoint = Checkpoint::open(directory.checkpoint_path(step));
      return start;
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
  if (!newest_fault.empty()) {
    throw UserError(directory.path().string() +
                    ": all of its checkpoints are damaged; choose another --run-dir to start "
                    "anew. Of the newest: " +
                    newest_fault);
  }
  return start;
}

bool is_inside(const fs::path& path, const fs::path& directory) {
  const fs::path inner = fs::weakly_canonical(path);
  const fs::path outer = fs::weakly_canonical(directory);
  const auto [end, unused] = std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end());
  return end == outer.end();
}

StartingPoint named(const fs::path& path, const RunDirectory& directory) {
  StartingPoint start{.checkpoint = Checkpoint::open(path)};
  if (!is_inside(start.checkpoint->path(), directory.path()) && directory.holds_a_run()) {
    throw UserError(directory.path().string() + ": holds a run of its own, which starting from " +
                    path.string() + " would overwrite; choose another --run-dir");
  }
  return start;
}

bool is_place_of_a_file(const std::string& key) {
  return key == "data.train" || key == "tokenizer.path";
}

std::string describe(const ConfigChange& change) {
  return change.key + ": " + change.before + " when it was saved, " + change.after + " now";
}

std::string build_description() {
  return std::string("transnormer ") + program_version() + ", LibTorch " + TORCH_VERSION +
         ", compiler " + __VERSION__;
}

}  // namespace

StartingPoint choose_start(const TrainRequest& request, const RunDirectory& directory) {
  switch (request.resume) {
    case ResumeMode::automatic:
      return newest_sound(directory);
    case ResumeMode::never:
      if (directory.holds_a_run()) {
        throw UserError(directory.path().string() +
                        ": holds a run, and --resume never starts anew; choose another --run-dir "
                        "or --resume auto");
      }
      return {};
    case ResumeMode::checkpoint:
      return named(request.resume_from, directory);
  }
  return {};
}

void record_environment(TrainingState& state, at::Device device) {
  state.threads = at::get_num_threads();
  state.device = c10::DeviceTypeName(device.type(), /*lower_case=*/true);
  state.build = build_description();
}

std::vector<std::string> compare_settings(const Checkpoint& checkpoint, const Config& config,
                                          const TrainingState& now) {
  std::vector<std::string> warnings;
  std::vector<std::string> faults;
  for (const ConfigChange& change : config_changes(checkpoint.config(), config)) {
    if (is_place_of_a_file(change.key)) {
      continue;
    }
    if (change.on_resume == OnResume::warn) {
      warnings.push_back(describe(change) + "; going on with the new value");
    } else if (change.on_resume == OnResume::refuse) {
      faults.push_back(describe(change) + ", and a resumed run must not change it; undo that or " +
                       "choose another --run-dir");
    }
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
  compare("threads", std::to_string(saved.threads), std::to_string(now.threads));
  compare("device", saved.device, now.device);
  compare("build", saved.build, now.build);
  return warnings;
}

std::shared_ptr<const Tokenizer> same_tokenizer(const Checkpoint& checkpoint,
                                                const Config& config) {
  const std::string& path = config.tokenizer.path;
  if (!path.empty() && load_tokenizer(path)->digest() != checkpoint.tokenizer()->digest()) {
    throw UserError("tokenizer.path: " + path + " is not the tokenizer that " +
                    checkpoint.path().string() +
                    " was trained with; name that one or choose another --run-dir");
  }
  return checkpoint.tokenizer();
}

void require_same_text(const Checkpoint& checkpoint, const std::string& train_data_digest) {
  if (checkpoint.state().train_data_digest != train_data_digest) {
    throw UserError("data.train: its text is not the one that " + checkpoint.path().string() +
                    " was trained with; name that one or choose another --run-dir");
  }
}

}  // namespace transnormer
