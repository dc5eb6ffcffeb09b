// What a single key cannot tell: contradictions between keys.
#pragma once

#include <string>
#include <vector>

#include "config/config.h"
#include "config/reader.h"

namespace transnormer {

// Appends to `state.faults`, each with the place of the key it names first; keys that are faulty by
// themselves are not judged again.
void check_config(const Config& config, ReadState& state, std::vector<std::string>& warnings);

}  // namespace transnormer
