#include "train/nonfinite.h"

#include <cmath>

#include "util/units.h"

namespace transnormer {
namespace {

std::string describe(double loss, double grad_norm) {
  return std::isfinite(loss) ? "the gradient's norm is " + format_fixed(grad_norm, 3)
                             : "the loss is " + format_fixed(loss, 3);
}

}  // namespace

Verdict judge_update(double loss, double grad_norm, const TrainConfig& config, LossScaler& scaler,
                     TrainingState& state) {
  const bool finite = std::isfinite(loss) && std::isfinite(grad_norm);
  const bool lowered = scaler.update(!finite);
  if (finite) {
    state.consecutive_skips = 0;
    return {};
  }
  const std::string fault = describe(loss, grad_norm);
  ++state.skipped_updates;
  if (lowered && std::isfinite(loss)) {
    return {UpdateFate::rescaled,
            fault + ": update skipped, loss scale lowered to " + format_short(scaler.scale())};
  }
  ++state.consecutive_skips;
  if (config.nonfinite == NonfinitePolicy::stop) {
    return {UpdateFate::diverged, fault + " (train.nonfinite is \"stop\")"};
  }
  if (state.consecutive_skips >= config.nonfinite_limit) {
    return {UpdateFate::diverged, fault + ", for " + format_count(state.consecutive_skips) +
                                      " updates in a row (train.nonfinite_limit)"};
  }
  return {UpdateFate::skipped, fault + ": update skipped, " +
                                   format_count(state.consecutive_skips) + " of " +
                                   format_count(config.nonfinite_limit) + " in a row"};
}

}  // namespace transnormer
