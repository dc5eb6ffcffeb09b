#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/text_reader.h"

namespace transnormer {

// Why the bytes of a text cannot be told from its tokens: the first of these that holds.
enum class Unreadable : std::uint8_t {
  no,
  unknown_tokens,
  dropped_carriage_returns,
  line_ends,      // some are missing from the text, or not coded
  altered_lines,  // the tokens of a line read as another one
  uneven_spaces,  // at the ends of some lines and not of others, and not coded
};
[[nodiscard]] const char* describe(Unreadable why);

struct UnknownWord {
  std::string word;  // cut where it is long
  std::int64_t count = 0;
  bool operator==(const UnknownWord&) const = default;
};

// What tokenising a split counted and found.
struct SplitCounts {
  std::int64_t tokens = 0;   // line ends included, where they are coded
  std::int64_t types = 0;    // different tokens
  std::int64_t unknown = 0;  // tokens that are the unknown token
  std::int64_t lines = 0;
  std::int64_t bytes = 0;  // of the source, byte order marks not among them
  std::int64_t words = 0;  // space-separated words of the source, line ends not among them
  TextFindings findings = {};
  Unreadable unreadable = Unreadable::no;
  std::vector<UnknownWord> common_unknown = {};  // the commonest, at most kCommonUnknown
  bool operator==(const SplitCounts&) const = default;
};
inline constexpr std::size_t kCommonUnknown = 5;

}  // namespace transnormer
