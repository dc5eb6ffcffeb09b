// The band of a sliding window: each token and those less than `window` places from it, in O(n
// window) time and memory, by products of blocks of queries with the keys in their reach.
//
//   const Band band(time, window, causal, lengths, device);
//   at::Tensor scores = band.scores(q, k);                    // of all pairs of a block
//   at::Tensor weights = scores.masked_fill(band.hidden(), -INFINITY).softmax(-1);
//   at::Tensor out = band.apply(weights, v);
//
// Queries are cut into blocks of block() tokens; those of block i meet the span() keys from place
// i * block() - before() on. So a tensor of scores or weights is [rows, heads, blocks(), block(),
// span()]: element (i, a, s) is of the query at i * block() + a and the key at i * block() -
// before() + s, which may lie in front of the first token or behind the last one; then it is
// hidden. block() is between 32 and 128 (products of a good size, with little waste) unless the
// rows are shorter, so that span() is at most 2 windows (causal) or 3, or a few dozen keys more for
// small windows.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace transnormer::ops {

class Band {
 public:
  static constexpr std::int64_t kShortestBlock = 32;
  static constexpr std::int64_t kLongestBlock = 128;

  // Of rows of `time` places. A query at i sees the keys j with i - window < j <= i if `causal`,
  // else |i - j| < window, of the tokens there are. lengths: int64 [rows], the tokens of each row,
  // or undefined where all are full, as OfRows has them. window at least 1.
  Band(std::int64_t time, std::int64_t window, bool causal, const at::Tensor& lengths,
       const at::Device& device);

  [[nodiscard]] std::int64_t blocks() const { return blocks_; }
  [[nodiscard]] std::int64_t block() const { return block_; }
  [[nodiscard]] std::int64_t span() const { return span_; }
  [[nodiscard]] std::int64_t before() const { return before_; }

  // q, k: [rows, time, heads, dim] -> q·k of all pairs, hidden ones too, in fp32. The backward pass
  // keeps q and k only.
  [[nodiscard]] at::Tensor scores(const at::Tensor& q, const at::Tensor& k) const;

  // bool [rows or 1, 1, blocks(), block(), span()], true where the query does not see the key. Each
  // query sees itself, those in the place of no token too, so that no row is without a key.
  [[nodiscard]] const at::Tensor& hidden() const { return hidden_; }

  // weights: as scores, fp32, zero where hidden; v: [rows, time, heads, value_dim] -> each query's
  // sum of the values by its weights, fp32 [rows, time, heads, value_dim]. The backward pass keeps
  // weights and v.
  [[nodiscard]] at::Tensor apply(const at::Tensor& weights, const at::Tensor& v) const;

  // x: [rows, time, heads, n], a number of something for each query -> [rows, heads, blocks(),
  // block(), n], zeros behind the last place; and back.
  [[nodiscard]] at::Tensor cut(const at::Tensor& x) const;
  [[nodiscard]] at::Tensor join(const at::Tensor& x) const;

  // For operators with backward passes of their own; neither makes gradients. x: [rows, time,
  // heads, n] -> the rows of each block's keys, [rows, heads, blocks(), span(), n], zeros where
  // there is no place; and the reverse, which adds up what came of each place.
  [[nodiscard]] at::Tensor reach(const at::Tensor& x) const;
  [[nodiscard]] at::Tensor sum_up(const at::Tensor& x) const;

 private:
  std::int64_t time_;
  std::int64_t block_;
  std::int64_t blocks_;
  std::int64_t before_;
  std::int64_t span_;
  at::Tensor hidden_;
};

}  // namespace transnormer::ops
