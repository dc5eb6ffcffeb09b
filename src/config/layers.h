// The files that make up a config: the one that was named, and those it includes.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "config/reader.h"

namespace transnormer {

// Parses into a layer; nothing, and a fault, if it is no JSON object. Relative paths in it start
// from `directory`.
[[nodiscard]] std::optional<ConfigLayer> parse_layer(const std::string& text,
                                                     const std::string& name,
                                                     const std::filesystem::path& directory,
                                                     std::vector<std::string>& faults);

// The layers from the lowest to the highest: each file after those it includes. A file is read
// once, and counts where it is included last. What keeps a file from being read is a fault.
[[nodiscard]] std::vector<ConfigLayer> collect_files(const std::filesystem::path& file,
                                                     std::vector<std::string>& faults);

// A pipe or device, or what a shell passes (/dev/stdin, <(..)): it may be read once only, says
// nothing about the run's name, and paths in it start from the working directory.
[[nodiscard]] bool is_stream(const std::filesystem::path& file);

}  // namespace transnormer
