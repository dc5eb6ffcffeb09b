#include "train/divergence.h"

#include <cmath>
#include <limits>
#include <utility>

namespace transnormer {
namespace {

bool is_high(double loss, double guessing) {
  return loss > 3 * guessing;  // not-a-number is not
}

}  // namespace

std::optional<LossRise> judge_loss(double loss, double guessing, TrainingState& state) {
  if (!std::isfinite(loss)) {
    return std::nullopt;
  }
  state.window_loss_sum += loss;
  if (++state.window_updates < kLossWindow) {
    return std::nullopt;
  }
  const double now = state.window_loss_sum / static_cast<double>(kLossWindow);
  const double before = std::exchange(state.former_window_loss, now);  // NaN compares as false
  state.window_loss_sum = 0;
  state.window_updates = 0;
  if (!is_high(now, guessing)) {
    state.low_loss_step = state.step;
    return std::nullopt;
  }
  if (!(now > 0.8 * before)) {
    return std::nullopt;
  }
  return LossRise{before, now};
}

bool is_loss_high(double guessing, const TrainingState& state) {
  return is_high(state.former_window_loss, guessing) ||
         (state.window_updates > 0 &&
          is_high(state.window_loss_sum / static_cast<double>(state.window_updates), guessing));
}

void restart_loss_windows(TrainingState& state) {
  state.window_loss_sum = 0;
  state.window_updates = 0;
  state.former_window_loss = std::numeric_limits<double>::quiet_NaN();
  state.low_loss_step = state.step;
}

bool has_loss_windows(const TrainingState& state) {
  return state.window_updates > 0 || !std::isnan(state.former_window_loss);
}

}  // namespace transnormer
