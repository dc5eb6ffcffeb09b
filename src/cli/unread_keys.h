// What each command reads of a config.
#pragma once

#include <string>
#include <vector>

#include "config/load.h"

namespace transnormer::cli {

// `all`: train, and what shows or checks configs.
enum class ConfigReader { all, analyze, bench, eval, inspect, prepare, tokenizer };

// A warning for each key of `--set` that the command does not read, so that it changes nothing.
[[nodiscard]] std::vector<std::string> unread_sets(const LoadedConfig& loaded, ConfigReader reader);

}  // namespace transnormer::cli
