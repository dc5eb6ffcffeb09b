// Makes dictionaries from counted words.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "config/config.h"
#include "tokenizer/word_table.h"

namespace transnormer {

// Words with how often they came. Merged where several threads count.
class WordCounts {
 public:
  // Counts the words of whole lines, separated by '\n'.
  void add_text(std::string_view text);
  void add(std::string_view word, std::int64_t times);
  void merge(const WordCounts& other);

  [[nodiscard]] const WordTable& words() const { return words_; }
  [[nodiscard]] std::int64_t count(std::int32_t number) const {
    return counts_[static_cast<std::size_t>(number)];
  }

  // The numbers of all words by falling count, ties by bytes.
  [[nodiscard]] std::vector<std::int32_t> by_falling_count() const;

 private:
  WordTable words_;
  std::vector<std::int64_t> counts_;
};

// The dictionary of the counted words, as WordTokenizer reads it: falling count, ties by bytes;
// words under `min_count` left out; at most `vocab_size` entries, specials included (0: all); then
// filled with unused entries up to a multiple of `pad_to_multiple`. Words spelled like specials are
// those specials, so they are not listed. Throws UserError where no word is left.
[[nodiscard]] std::string make_dictionary(const WordCounts& counts, const TokenizerConfig& config);

// The size of the tokenizer that the config asks to make, where it says one (else 0): a dictionary
// is filled up, too. A text of fewer words gives less.
[[nodiscard]] std::int64_t made_vocab_size(const TokenizerConfig& config);

}  // namespace transnormer
