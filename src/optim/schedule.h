// The learning rate as a function of the update.
#pragma once

#include <cstdint>

#include "config/config.h"

namespace transnormer {

// Whether rates depend on the update that training ends with.
[[nodiscard]] bool falls_towards_the_end(ScheduleKind schedule);

// The rate of the update that follows `done` finished ones (the first is done = 0). Warm-up rises
// linearly from warmup_init_lr to the peak over warmup_steps; then, with s = done:
//   inverse_sqrt  peak * sqrt(max(warmup, 1) / max(s, 1))
//   cosine        min_lr + (peak - min_lr) * (1 + cos(pi * x)) / 2
//   linear        min_lr + (peak - min_lr) * (1 - x)
//   polynomial    min_lr + (peak - min_lr) * (1 - x)^power
//   constant      peak
//   wsd           min_lr + (peak - min_lr) * min((total - s) / d, 1), d = decay_steps, 0: total /
//   10
//                 (warm-up, stable, decay; Hu et al. 2024, MiniCPM)
// where x = (s - warmup) / (total - warmup), kept in [0, 1] (1 where total <= warmup);
// never below min_lr after the warm-up.
[[nodiscard]] double learning_rate(const ScheduleConfig& schedule, double peak, std::int64_t done,
                                   std::int64_t total);

}  // namespace transnormer
