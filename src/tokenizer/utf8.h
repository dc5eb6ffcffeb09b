// The rule by which bytes become characters: well-formed UTF-8 as Unicode has it (no overlong
// forms, no surrogates, nothing past U+10FFFF).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace transnormer {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

// Whether a byte of well-formed text stands inside a character, behind its first.
[[nodiscard]] constexpr bool continues_character(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0) == 0x80;
}

struct Utf8Step {
  enum class Kind { character, invalid, incomplete };
  Kind kind;
  std::size_t size;  // bytes of the character; 1 where invalid; all there are where incomplete
};

// Looks at the start of a text that is not empty. Incomplete: well-formed so far, but cut.
[[nodiscard]] constexpr Utf8Step utf8_step(std::string_view bytes) {
  using enum Utf8Step::Kind;
  const auto at = [&](std::size_t i) { return static_cast<unsigned char>(bytes[i]); };
  const unsigned lead = at(0);
  if (lead < 0x80) {
    return {character, 1};
  }
  if (lead < 0xC2 || lead > 0xF4) {
    return {invalid, 1};
  }
  const std::size_t size = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  for (std::size_t i = 1; i < size; ++i) {
    if (i == bytes.size()) {
      return {incomplete, i};
    }
    // The first byte after the lead is bounded more narrowly by some leads.
    const bool second = i == 1;
    const unsigned low = second && lead == 0xE0 ? 0xA0 : second && lead == 0xF0 ? 0x90 : 0x80;
    const unsigned high = second && lead == 0xED ? 0x9F : second && lead == 0xF4 ? 0x8F : 0xBF;
    if (at(i) < low || at(i) > high) {
      return {invalid, 1};
    }
  }
  return {character, size};
}

// The text with U+FFFD in place of each byte that belongs to no character.
[[nodiscard]] inline std::string well_formed(std::string_view bytes) {
  std::string text;
  while (!bytes.empty()) {
    const Utf8Step step = utf8_step(bytes);
    const bool whole = step.kind == Utf8Step::Kind::character;
    text += whole ? bytes.substr(0, step.size) : kReplacementCharacter;
    bytes.remove_prefix(step.size);
  }
  return text;
}

}  // namespace transnormer
