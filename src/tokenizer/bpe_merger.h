// Joins the bytes of a piece into tokens.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "tokenizer/bpe_vocabulary.h"

namespace transnormer {

// Of all pairs of neighbours that have a merge, the one of the lowest rank is joined, the leftmost
// of several, until none has (Sennrich et al., 2016). O(n log n) for n bytes, by a heap of the
// pairs.
class BpeMerger {
 public:
  explicit BpeMerger(const std::array<TokenId, 256>& bytes, std::size_t expected_merges = 1 << 16);

  void add(BpeMerge merge);  // of the next rank

  // What one thread needs to work in; kept from piece to piece.
  class Memory {
    friend class BpeMerger;
    struct Part {
      TokenId id;  // -1: joined to the one before
      std::int32_t before;
      std::int32_t behind;
    };
    std::vector<Part> parts;
    std::vector<std::uint64_t> heap;  // rank, then the place of the left part
  };

  // Appends the tokens of a piece. Throws UserError where it has 2^31 bytes or more.
  void merge(std::string_view piece, std::vector<TokenId>& ids, Memory& memory) const;

 private:
  struct Slot {
    std::uint64_t pair = ~std::uint64_t{0};  // free: no pair has this key
    std::int32_t rank = -1;
  };

  [[nodiscard]] std::size_t slot_of(std::uint64_t pair) const;
  [[nodiscard]] std::int32_t rank_of(TokenId left, TokenId right) const {
    return slots_[slot_of(pair_key(left, right))].rank;
  }
  void grow();
  void consider(std::int32_t left, Memory& memory) const;

  std::array<TokenId, 256> bytes_;
  std::vector<BpeMerge> merges_;
  std::vector<Slot> slots_;  // a power of two of them, at most half taken
};

}  // namespace transnormer
