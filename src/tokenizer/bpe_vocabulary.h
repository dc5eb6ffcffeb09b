// The vocabulary of a byte-level BPE, as GPT-2 has it: the 256 bytes, what joins two tokens into a
// third, and tokens that no text becomes.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace transnormer {

// GPT-2's files spell each byte as a character that prints: those that print in Latin-1 as they
// are, the others as U+0100, U+0101 .. in their order.
[[nodiscard]] std::string spell_bytes(std::string_view bytes);
// The reverse; nothing where a character is none of the 256.
[[nodiscard]] std::optional<std::string> spelled_bytes(std::string_view spelling);

struct BpeToken {
  std::string spelling;   // by spell_bytes(); of an added token, its name
  std::string bytes;      // that it reads as
  bool is_added = false;  // beside the vocabulary, such as <|endoftext|>
};

struct BpeMerge {
  TokenId left;
  TokenId right;
  TokenId joined;
};

struct BpeVocabulary {
  std::vector<BpeToken> tokens;  // by id
  std::array<TokenId, 256> bytes{};
  std::vector<BpeMerge> merges;  // by rank: the first goes first
  TokenId end = 0;               // <|endoftext|>
};

inline constexpr std::string_view kBpeEndToken = "<|endoftext|>";

[[nodiscard]] constexpr std::uint64_t pair_key(TokenId left, TokenId right) {
  return static_cast<std::uint64_t>(left) << 32 | static_cast<std::uint32_t>(right);
}

// Makes a vocabulary of what a file names, piece by piece. `name` and `where` ("vocab.json: line
// 3") stand in messages. Each call throws UserError where what it is told cannot be.
class BpeVocabularyBuilder {
 public:
  explicit BpeVocabularyBuilder(std::string name) : name_(std::move(name)) {}

  [[nodiscard]] bool has_token(const std::string& spelling) const {
    return ids_.contains(spelling);
  }
  void add_token(std::int64_t id, BpeToken token, const std::string& where);
  // When all tokens are there: their ids must run from 0 without a hole, and each byte be one.
  void end_tokens();

  // Merges come by rank. The two tokens and what they join to must be there, none an added one.
  void add_merge(std::string_view left, std::string_view right, const std::string& where);
  void add_merge(BpeMerge merge, const std::string& where);

  // Appends the end token where it is not there.
  [[nodiscard]] BpeVocabulary finish();

  [[nodiscard]] const BpeVocabulary& so_far() const { return vocabulary_; }

 private:
  [[nodiscard]] TokenId id_of(std::string_view spelling, const std::string& where) const;

  std::string name_;
  BpeVocabulary vocabulary_;
  std::unordered_map<std::string, TokenId> ids_;  // by spelling
  std::unordered_set<std::uint64_t> pairs_;       // that have a merge
};

}  // namespace transnormer
