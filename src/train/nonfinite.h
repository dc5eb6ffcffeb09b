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
};

struct Verdict {
  UpdateFate fate = UpdateFate::applied;
  std::string reason;  // for people, empty where applied
};

// Judges an update by its loss and the global norm of its unscaled gradients, and keeps the counts
// in `state` and the loss scale. Skips in a row count from the last applied update; an overflow
// that lowers the loss scale leaves that count alone. Throws DivergedError under the policy "stop",
// and under "skip" at the `nonfinite_limit`-th skip in a row.
[[nodiscard]] Verdict judge_update(double loss, double grad_norm, const TrainConfig& config,
                                   LossScaler& scaler, TrainingState& state);

}  // namespace transnormer
