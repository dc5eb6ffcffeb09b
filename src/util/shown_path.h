// Paths as they stand in messages for people.
#pragma once

#include <filesystem>
#include <string>

namespace transnormer {

// The path as seen from the working directory where that is shorter; of one that is still longer
// than `most` characters the end, behind "[..]/".
[[nodiscard]] std::string shown_path(const std::filesystem::path& path, std::size_t most = 56);

}  // namespace transnormer
