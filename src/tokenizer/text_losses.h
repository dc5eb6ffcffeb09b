// What the tokens of a text do not tell of it, noted line by line while it is encoded.
#pragma once

#include <bit>
#include <cstdint>

#include "tokenizer/word_dictionary.h"

namespace transnormer {

// Whether lines can be read back from their tokens. A single space before or behind a line may be
// missing from what the tokens read as: where it is missing from every line alike, as in WikiText,
// nothing is lost.
class ReadBack {
 public:
  // The tokens read as the line, but for these spaces. A line without tokens can miss one at most.
  void note_line(bool has_tokens, bool misses_first_space, bool misses_last_space) {
    const unsigned missing = (misses_first_space ? 1U : 0U) | (misses_last_space ? 2U : 0U);
    (has_tokens ? lines_ : blank_lines_) |= 1U << missing;
  }
  // The tokens read as another line.
  void note_altered_line() { altered_ = true; }
  void merge(const ReadBack& other) {
    lines_ |= other.lines_;
    blank_lines_ |= other.blank_lines_;
    altered_ = altered_ || other.altered_;
  }

  [[nodiscard]] bool altered() const { return altered_; }
  // Spaces are missing from some lines and not from others.
  [[nodiscard]] bool uneven() const {
    return std::popcount(lines_) > 1 || std::popcount(blank_lines_) > 1;
  }

 private:
  // Bit m: lines came that miss the spaces m, 1 for the first, 2 for the last.
  unsigned lines_ = 0;
  unsigned blank_lines_ = 0;
  bool altered_ = false;
};

struct TextLosses {
  WordCounts unknown;  // what the unknown tokens stand for
  ReadBack read_back;
};

}  // namespace transnormer
