// What becomes of an update whose loss or gradient may not be finite.
#pragma once

#include <string>

#include "checkpoint/training_state.h"
#include "config/config.h"
#include "optim/loss_scaler.h"

namespace transnormer {

enum class UpdateFate {
  applied,
  skipped,   // loss or gradient was not finite
  rescaled,  // skipped too, but only the loss scale was too large, and is now lower
  diverged,  // not finite, and the policy or the number of skips in a row ends training
};

struct Verdict {
  UpdateFate fate = UpdateFate::applied;
  std::string reason;  // for people, empty where applied
};

// Judges an update by its loss and the global norm of its unscaled gradients, and keeps the counts
// in `state` and the loss scale. Skips in a row count from the last applied update; an overflow
// that lowers the loss scale leaves that count alone. Diverged is the first one under the policy
// "stop", and the `nonfinite_limit`-th in a row under "skip".
[[nodiscard]] Verdict judge_update(double loss, double grad_norm, const TrainConfig& config,
                                   LossScaler& scaler, TrainingState& state);

}  // namespace transnormer
