// Options that several commands share.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"

namespace transnormer::cli {

// `--set a.b=v`, as often as wanted; one value each, so that a positional may follow.
void add_sets(CLI::App& command, std::vector<std::string>& sets);

// `--device auto|cpu|cuda` and `--precision fp32|bf16|fp16`. `otherwise` says in the help what
// holds without the option. A name that is not known throws UserError while the command line is
// read.
void add_device(CLI::App& command, std::optional<DeviceChoice>& device,
                const std::string& otherwise);
void add_precision(CLI::App& command, std::optional<Precision>& precision,
                   const std::string& otherwise);

}  // namespace transnormer::cli
