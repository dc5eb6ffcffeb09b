#pragma once

#include <string_view>

namespace transnormer {

// As the path of a text, this is standard input (a file of that name: "./-").
inline constexpr std::string_view kStandardInput = "-";

}  // namespace transnormer
