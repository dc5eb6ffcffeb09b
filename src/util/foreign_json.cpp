#include "util/foreign_json.h"

#include <cstddef>
#include <limits>

namespace transnormer {
namespace {

// Of JSON; up to the first error of what is none. Asked before parsing: nlohmann's callback for the
// depth makes it go through all keys of an object with each value.
bool nests_deeper_than(int most, std::string_view bytes) {
  int depth = 0;
  bool is_in_string = false;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const char c = bytes[i];
    if (c == '"') {
      is_in_string = !is_in_string;
    } else if (is_in_string) {
      i += c == '\\' ? 1 : 0;
    } else if (c == '{' || c == '[') {
      if (++depth > most) {
        return true;
      }
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return false;
}

}  // namespace

nlohmann::json parse_foreign_json(std::string_view bytes) {
  constexpr int kDeepest = 32;
  if (nests_deeper_than(kDeepest, bytes)) {
    return nlohmann::json::value_t::discarded;
  }
  return nlohmann::json::parse(bytes, nullptr, /*allow_exceptions=*/false);
}

std::optional<std::int64_t> json_integer(const nlohmann::json& value) {
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
