// Words separated by ASCII spaces, numbered by a dictionary in fairseq's format: four specials that
// the file does not list, then one "word count" a line, in the file's own order, count 0 too.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/tokenizer.h"
#include "tokenizer/word_table.h"

namespace transnormer {

class WordTokenizer final : public Tokenizer {
 public:
  static constexpr TokenId kBegin = 0;
  static constexpr TokenId kEnd = 2;
  static constexpr TokenId kUnknown = 3;
  static constexpr std::int64_t kSpecials = 4;

  // Throws UserError with the line's number for lines that are malformed, or name a word twice.
  WordTokenizer(std::string dictionary, const std::string& name);

  [[nodiscard]] std::unique_ptr<StreamDecoder> stream_decoder() const override;

  [[nodiscard]] std::string piece(TokenId id) const override;
  [[nodiscard]] std::int64_t size() const override { return words_.size(); }
  [[nodiscard]] std::optional<TokenId> end_id() const override { return kEnd; }
  [[nodiscard]] std::optional<TokenId> begin_id() const override { return kBegin; }
  [[nodiscard]] TokenId unknown_id() const override { return kUnknown; }
  [[nodiscard]] const std::string& serialized() const override { return dictionary_; }
  [[nodiscard]] std::string file_name() const override { return "tokenizer.txt"; }

 private:
  void encode(std::string_view line, std::vector<TokenId>& ids, TextLosses* losses) const override;

  std::string dictionary_;
  WordTable words_;  // specials first
};

// Calls `each` with every word of the line: what stands between ASCII spaces and is not empty.
template <typename Each>
void for_each_word(std::string_view line, const Each& each) {
  const char* at = line.data();
  const char* const end = at + line.size();
  while (at != end) {
    const char* const begin = at;
    while (at != end && *at != ' ') {
      ++at;
    }
    if (at != begin) {
      each(std::string_view(begin, static_cast<std::size_t>(at - begin)));
    }
    if (at != end) {
      ++at;
    }
  }
}

}  // namespace transnormer
