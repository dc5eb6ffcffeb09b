// Integers of parsed JSON, as a file of unknown origin has them.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>

namespace transnormer {

// Nothing where the value is no integer, or one that does not fit: the conversion of nlohmann::json
// takes 1.5 for 1 and makes a negative number of 2^63.
template <class Json>
[[nodiscard]] std::optional<std::int64_t> json_integer(const Json& value) {
  if (!value.is_number_integer()) {
    return std::nullopt;
  }
  constexpr std::uint64_t kMost = std::numeric_limits<std::int64_t>::max();
  if (value.is_number_unsigned() && value.template get<std::uint64_t>() > kMost) {
    return std::nullopt;
  }
  return value.template get<std::int64_t>();
}

}  // namespace transnormer
