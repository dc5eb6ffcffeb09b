// Attention to a sliding window and to every stride-th token. Child et al. 2019, "Generating Long
// Sequences with Sparse Transformers", both patterns in one softmax.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "ops/attention/visibility.h"
#include "ops/dropout.h"

namespace transnormer::ops {

struct SparseAttentionOptions {
  std::int64_t window = 64;
  std::int64_t stride = 64;
  double scale = 1;  // of the scores, head_dim^-1/2
  bool causal = true;
};

// Scaled dropout masks of the weights, fp32; where nothing is dropped, undefined.
struct SparseMasks {
  at::Tensor window;   // [rows, time, heads, of the keys in a block's reach]
  at::Tensor strided;  // [rows, time, heads, of the tokens in a class]
  std::int64_t before = 0;
};

// Those of a batch, q: [batch, time, heads, key_dim]. They depend on a weight's place only, so that
// rows which are parts of the batch's rows (by_rows) take theirs.
[[nodiscard]] SparseMasks sparse_dropout(const at::Tensor& q, const Drop& drop,
                                         const Visibility& visibility,
                                         const SparseAttentionOptions& options);

// q, k: [rows, time, heads, key_dim]; v: [rows, time, heads, value_dim]; encoded already. Token i
// sees j where 0 <= i - j < window or (i - j) mod stride = 0 (causal, j <= i; else with |i - j|);
// one softmax over both, no pair counted twice. lengths: as OfRows has them. Result: [rows, time,
// heads, value_dim] in q's type. Scores, softmax and sums in fp32; time and memory O(time (window +
// time / stride)); the backward pass keeps q, k, v, the result and one number a head of each token
// (and the masks).
[[nodiscard]] at::Tensor sparse_attention(const at::Tensor& q, const at::Tensor& k,
                                          const at::Tensor& v, const at::Tensor& lengths,
                                          const SparseMasks& masks,
                                          const SparseAttentionOptions& options);

}  // namespace transnormer::ops
