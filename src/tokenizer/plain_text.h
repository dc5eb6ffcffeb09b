// What of a text file's bytes is text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace transnormer {

// Some programs put U+FEFF before a text to say that it is UTF-8. It is no part of the text.
[[nodiscard]] constexpr std::string_view without_byte_order_mark(std::string_view text) {
  constexpr std::string_view kMark = "\xEF\xBB\xBF";
  return text.starts_with(kMark) ? text.substr(kMark.size()) : text;
}

// Takes out the carriage returns that stand right before a line feed or at the end of the text.
// Returns how many.
std::int64_t drop_carriage_returns(std::string& text);

// The bytes of a text that belong to no character of UTF-8.
struct InvalidUtf8 {
  std::int64_t bytes = 0;
  std::size_t first = 0;  // where the first stands, if any
};
[[nodiscard]] InvalidUtf8 find_invalid_utf8(std::string_view text);

// How often a byte occurs. Made for all of a text to go through: many bytes a step.
[[nodiscard]] std::int64_t count_byte(std::string_view text, char byte);

}  // namespace transnormer
