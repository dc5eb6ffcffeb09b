// When training ends.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/training_state.h"
#include "config/config.h"

namespace transnormer {

// The update that training ends with: the earlier of train.steps and train.max_epochs, 0 meaning no
// limit. Throws UserError where both are 0.
[[nodiscard]] std::int64_t total_steps(const TrainConfig& config, std::int64_t samples);

// Why training ends here, for people; nothing where it goes on.
[[nodiscard]] std::optional<std::string> reason_to_end(const Config& config,
                                                       const TrainingState& state,
                                                       std::int64_t total);

// The keys whose values end training here, to be named to who wants it to go on.
[[nodiscard]] std::vector<std::string> keys_that_end(const Config& config,
                                                     const TrainingState& state,
                                                     std::int64_t samples);

}  // namespace transnormer
