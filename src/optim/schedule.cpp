#include "optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace transnormer {
namespace {

// How far the decay has come, in [0, 1].
double decay_progress(const ScheduleConfig& schedule, std::int64_t done, std::int64_t total) {
  const std::int64_t decay_steps = total - schedule.warmup_steps;
  if (decay_steps <= 0) {
    return 1;
  }
  return std::clamp(
      static_cast<double>(done - schedule.warmup_steps) / static_cast<double>(decay_steps), 0.0,
      1.0);
}

// Of wsd: the fall at the end.
std::int64_t decay_steps(const ScheduleConfig& schedule, std::int64_t total) {
  return schedule.decay_steps > 0 ? schedule.decay_steps : std::max<std::int64_t>(total / 10, 1);
}

double after_warmup(const ScheduleConfig& schedule, double peak, std::int64_t done,
                    std::int64_t total) {
  const double left = 1 - decay_progress(schedule, done, total);
  const double range = peak - schedule.min_lr;
  switch (schedule.name) {
    case ScheduleKind::inverse_sqrt:
      return peak *
             std::sqrt(static_cast<double>(std::max<std::int64_t>(schedule.warmup_steps, 1)) /
                       static_cast<double>(std::max<std::int64_t>(done, 1)));
    case ScheduleKind::cosine:
      return schedule.min_lr + range * (1 + std::cos(std::numbers::pi * (1 - left))) / 2;
    case ScheduleKind::linear:
      return schedule.min_lr + range * left;
    case ScheduleKind::polynomial:
      return schedule.min_lr + range * std::pow(left, schedule.power);
    case ScheduleKind::wsd: {
      const double length = static_cast<double>(decay_steps(schedule, total));
      return schedule.min_lr +
             range * std::clamp(static_cast<double>(total - done) / length, 0.0, 1.0);
    }
    case ScheduleKind::constant:
      break;
  }
  return peak;
}

}  // namespace

bool falls_towards_the_end(ScheduleKind schedule) {
  return schedule != ScheduleKind::inverse_sqrt && schedule != ScheduleKind::constant;
}

double learning_rate(const ScheduleConfig& schedule, double peak, std::int64_t done,
                     std::int64_t total) {
  if (done < schedule.warmup_steps) {
    const double share = static_cast<double>(done) / static_cast<double>(schedule.warmup_steps);
    return schedule.warmup_init_lr + (peak - schedule.warmup_init_lr) * share;
  }
  return std::max(after_warmup(schedule, peak, done, total), schedule.min_lr);
}

}  // namespace transnormer
