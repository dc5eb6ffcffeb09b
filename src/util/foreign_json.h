// JSON of files that may be damaged or another program's.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

namespace transnormer {

// Discarded, which is no object, where the bytes are no JSON or nest deeper than any file of ours:
// that takes a hundred times their size in memory. Keys are sorted: the lookup in an ordered_json
// takes longer the more there are.
[[nodiscard]] nlohmann::json parse_foreign_json(std::string_view bytes);

// Nothing where the value is no integer, or one that does not fit: the conversion of nlohmann::json
// takes 1.5 for 1 and makes a negative number of 2^63.
[[nodiscard]] std::optional<std::int64_t> json_integer(const nlohmann::json& value);

}  // namespace transnormer
