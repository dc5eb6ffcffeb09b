#include "train/soundness.h"

#include <algorithm>
#include <vector>

#include "util/error.h"
#include "util/units.h"

namespace transnormer {
namespace {

std::string what_to_change(const Config& config) {
  std::string changes = "a lower optimizer.lr";
  if (config.optimizer.clip_norm == 0) {
    changes += " or optimizer.clip_norm=1";
  }
  if (config.train.precision == Precision::fp16) {
    changes += " or train.precision=bf16";
  }
  return changes;
}

}  // namespace

bool is_amid_skips(const TrainingState& state) {
  return state.consecutive_skips > 0;
}

std::optional<std::string> fault_of_state(const TrainingRun& run) {
  const std::int64_t skips = run.state.consecutive_skips;
  if (is_amid_skips(run.state)) {
    return skips == 1 ? "the last update was skipped"
                      : "the last " + format_count(skips) + " updates were skipped";
  }
  if (!has_finite_weights(*run.model)) {
    return "the weights are not finite";
  }
  return std::nullopt;
}

std::optional<std::int64_t> newest_checkpoint(const TrainingRun& run, std::int64_t most) {
  std::vector<std::int64_t> steps;
  try {
    steps = run.directory.checkpoint_steps();
  } catch (const UserError&) {  // the directory cannot be read now
    return std::nullopt;
  }
  const auto end = std::upper_bound(steps.begin(), steps.end(), most);
  return end == steps.begin() ? std::nullopt : std::optional(*(end - 1));
}

std::string advice_after_divergence(const TrainingRun& run, std::int64_t sound_until) {
  const std::string changes = what_to_change(run.config);
  if (const auto step = newest_checkpoint(run, sound_until)) {
    return "the last sound checkpoint is " + run.directory.checkpoint_path(*step).string() +
           "; go on from it by --resume with " + changes;
  }
  const bool is_empty = !newest_checkpoint(run, run.state.step);
  return std::string("there is no checkpoint from before; start anew") +
         (is_empty ? "" : " in another --run-dir") + " with " + changes;
}

}  // namespace transnormer
