// A config as Markdown, for people who look at a run.
#pragma once

#include <string>

#include "config/config.h"

namespace transnormer {

// Two code blocks: the keys that are unlike their defaults, a line each ("model.dim = 256"), then
// the whole resolved config.
[[nodiscard]] std::string config_markdown(const Config& config);

}  // namespace transnormer
