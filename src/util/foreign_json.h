// JSON of files that may be damaged or another program's.
#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

namespace transnormer {

// Discarded, which is no object, where the bytes are no JSON or nest deeper than any file of ours:
// that takes a hundred times their size in memory. Keys are sorted: the lookup in an ordered_json
// takes longer the more there are.
[[nodiscard]] inline nlohmann::json parse_foreign_json(std::string_view bytes) {
  using Json = nlohmann::json;
  constexpr int kDeepest = 32;
  struct TooDeep {};
  try {
    return Json::parse(
        bytes,
        [](int depth, Json::parse_event_t, Json&) {
          if (depth > kDeepest) {
            throw TooDeep{};
          }
          return true;
        },
        /*allow_exceptions=*/false);
  } catch (const TooDeep&) {
    return Json::value_t::discarded;
  }
}

// Nothing where the value is no integer, or one that does not fit: the conversion of nlohmann::json
// takes 1.5 for 1 and makes a negative number of 2^63.
[[nodiscard]] inline std::optional<std::int64_t> json_integer(const nlohmann::json& value) {
  if (!value.is_number_integer()) {
    return std::nullopt;
  }
  constexpr std::uint64_t kMost = std::numeric_limits<std::int64_t>::max();
  if (value.is_number_unsigned() && value.get<std::uint64_t>() > kMost) {
    return std::nullopt;
  }
  return value.get<std::int64_t>();
}

}  // namespace transnormer
