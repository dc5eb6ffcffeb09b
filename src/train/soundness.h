// Which states are worth going back to. Only those are saved: a checkpoint of a training that is
// about to diverge would push out the sound ones.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "train/training_run.h"

namespace transnormer {

// True where the last updates were skipped, for another reason than the loss scale. A state that
// earlier versions saved may be like that.
[[nodiscard]] bool is_amid_skips(const TrainingState& state);

// Why the present state is not sound, for people; nothing where it is. Reads all weights.
[[nodiscard]] std::optional<std::string> fault_of_state(const TrainingRun& run);

// The step of the newest checkpoint of the run directory up to `most`, if any can be found.
[[nodiscard]] std::optional<std::int64_t> newest_checkpoint(const TrainingRun& run,
                                                            std::int64_t most);

// What to do after a divergence: which checkpoint is sound, being of no later step than
// `sound_until`, and what to change.
[[nodiscard]] std::string advice_after_divergence(const TrainingRun& run, std::int64_t sound_until);

}  // namespace transnormer
