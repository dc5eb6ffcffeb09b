// Softmax attention among tokens that stand side by side once they are ordered by buckets, in
// several rounds with an order each (Kitaev et al. 2020, "Reformer"). O(places * block).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace transnormer::ops {

// Where the tokens stand: blocks of `length` places, of all rounds and sequences one after another.
struct HashedPlaces {
  std::int64_t length = 1;
  at::Tensor place;   // int64 [rounds, tokens]: of each token in each round, all different
  at::Tensor source;  // int64 [blocks * length]: the token at a place, 0 where none stands
  at::Tensor
      group;  // int64 [blocks * length]: tokens see those of their group, of 31 bits; -1: none
  // int64 [blocks] each: the other blocks that one's queries look at. A block in the place of its
  // own is not looked at again; beside those no block stands twice in one of them.
  std::vector<at::Tensor> others;
  // The most places that a token looks back, and none ahead, where the others are the blocks
  // before, nearest first; 0: both ways, as far as the blocks go.
  std::int64_t reach = 0;
};

// q, k: [tokens, key_dim], v: [tokens, value_dim], fp32 -> fp32 [tokens, value_dim]. One softmax
// over what a token sees in all rounds, of q.k; a token seen in several counts as often. Itself it
// sees in each with a score of -1e5, without a gradient: where there is nothing else. The backward
// pass keeps the operands and the output. Deterministic.
[[nodiscard]] at::Tensor hashed_attention(const at::Tensor& q, const at::Tensor& k,
                                          const at::Tensor& v, const HashedPlaces& places);

inline constexpr double kScoreOfItself = -1e5;

}  // namespace transnormer::ops
