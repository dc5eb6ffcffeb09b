// Where the texts of data/ come from.
#pragma once

#include <filesystem>
#include <string>

namespace transnormer {

// "; .." for the message that this text is not there: the script that makes it, where it is one
// that data/README.md lists, else that page where the text lies below one. Empty where nothing is
// known.
[[nodiscard]] std::string where_from(const std::filesystem::path& missing);

}  // namespace transnormer
