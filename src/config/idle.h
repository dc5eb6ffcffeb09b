// Keys that someone set and that act on nothing beside the others.
#pragma once

#include <string>
#include <vector>

#include "config/config.h"
#include "config/reader.h"

namespace transnormer {

// One line each. Told are keys that `--set` or the file named `own_file` sets to something else
// than the default: an included file, or a resolved config that spells out everything, sets more
// than anyone meant to act.
[[nodiscard]] std::vector<std::string> idle_keys(const Config& config, const ReadState& state,
                                                 const std::string& own_file);

}  // namespace transnormer
