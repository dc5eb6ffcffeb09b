// The mean of several checkpoints' weights, a checkpoint of its own.
#pragma once

#include <filesystem>
#include <vector>

#include "checkpoint/checkpoint.h"

namespace transnormer {

// The newest `count` checkpoints of a run directory, oldest first. Throws UserError where it has
// not so many.
[[nodiscard]] std::vector<Checkpoint> newest_checkpoints(const std::filesystem::path& run_dir,
                                                         std::int64_t count);

// Writes the mean of the weights of `sources` (at least one) into `out` (see WholeDirectory): sums
// in double, in the given order, stored in fp32. All else is that of the source of the highest
// step, the last such; there is no optimizer's state, so that no training can go on from it. Throws
// UserError where the models or tokenizers differ (dropout may), one is given twice, or weights are
// not finite; WriteError; StoppedError when a signal asks to stop. Returns where it is.
std::filesystem::path write_average(const std::vector<Checkpoint>& sources,
                                    const std::filesystem::path& out);

}  // namespace transnormer
