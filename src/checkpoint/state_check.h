// Whether the figures of a state can be those of a training. Internal to src/checkpoint.
#pragma once

#include <string>

#include "checkpoint/training_state.h"

namespace transnormer {

// `name` stands in messages. Throws DamagedCheckpointError that names the first figure that no
// training can have come to.
void check_state(const TrainingState& state, const std::string& name);

}  // namespace transnormer
