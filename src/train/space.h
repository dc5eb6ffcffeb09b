// Room on the disk for a run's checkpoints.
#pragma once

#include <cstdint>

#include "config/config.h"
#include "train/training_run.h"

namespace transnormer {

// How many checkpoints more than the `held` ones the disk must take at one time from `step` on:
// those that are kept and the one that is being written, but no more than will be saved.
// checkpoint.keep_every, which keeps more as long as there is room, is not counted.
[[nodiscard]] std::int64_t checkpoints_to_come(const Config& config, std::int64_t step,
                                               std::int64_t total_steps, std::int64_t held);

// A run that cannot save is not worth starting: throws WriteError where there is no room.
void require_space(const TrainingRun& run);

}  // namespace transnormer
