// Which checkpoint it is, whatever it is called by.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "checkpoint/checkpoint.h"

namespace transnormer {

// The run directory that a checkpoint stands in; nothing where it stands elsewhere.
[[nodiscard]] std::optional<std::filesystem::path> run_of(const Checkpoint& checkpoint);

// SHA-256 of the file of its weights.
[[nodiscard]] const std::string& weights_digest(const Checkpoint& checkpoint);

}  // namespace transnormer
