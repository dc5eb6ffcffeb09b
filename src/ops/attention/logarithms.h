// Linear attention whose queries and keys are logarithms of their features, as for e^x and for the
// positive random features of Performer: phi = e^x is never formed by itself, which single
// precision could not hold. A feature of the keys is taken in units of e^r, with r the largest of
// it that a query has seen for certain; sums change their units where r grows. So weights are
// exact, whatever the sizes, and no token's bits depend on what comes after it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "ops/kernels/kernels.h"

namespace transnormer::ops {

// The logarithm of no feature: below all that is met, but finite, so that no difference of two of
// them is not a number.
inline constexpr double kNoFeature = -1e30;

// How a CPU's kernel cuts the sequences: a chunk ends after kChunk tokens, and before a token one
// of whose features is more than e^kMostRise of the chunk's units, which are the maxima up to its
// first token.
class LogarithmChunks {
 public:
  static constexpr float kMostRise = 40;

  // k: fp32 [batch, time, heads, dim] on the CPU, rows as AttentionOperands has them. before: fp32
  // [batch, heads, dim], the maxima of what came before; undefined: nothing did.
  LogarithmChunks(const at::Tensor& k, const at::Tensor& before);

  [[nodiscard]] kernels::Logarithms view() const;
  // Of each head's first chunk, and of all keys with those before: [batch, heads, dim].
  [[nodiscard]] at::Tensor first_references() const;
  [[nodiscard]] at::Tensor maxima() const;

 private:
  at::Tensor first_;       // int64 [batch * heads + 1]
  at::Tensor starts_;      // int64 [chunks + batch * heads]
  at::Tensor references_;  // fp32 [chunks + batch * heads, dim]
  std::int64_t batch_;
};

// The same by tensor operations; fp32 or double, differentiable by autograd. q, k: [batch, time,
// heads, dim], v: [batch, time, heads, value_dim]; lengths (int64 [batch]): the real tokens of each
// row, undefined where all are. Gives sum_s (e^q . e^k_s) v_s, divided by sum_s e^q . e^k_s where
// `divides`.
[[nodiscard]] at::Tensor exponential_attention(const at::Tensor& q, const at::Tensor& k,
                                               const at::Tensor& v, bool causal, bool divides,
                                               const at::Tensor& lengths);

}  // namespace transnormer::ops
