// Attention inside non-overlapping blocks, O(n * block).
#pragma once

#include <ATen/core/Tensor.h>

#include "config/config.h"
#include "ops/attention/encoding.h"
#include "ops/attention/visibility.h"
#include "ops/dropout.h"

namespace transnormer::ops {

struct BlockAttentionOptions {
  ScoreKind score = ScoreKind::softmax;  // softmax, or ReLU of the masked scores (ReLA)
  std::int64_t block = 64;               // 0: one block over the whole sequence
  double scale = 1;                      // of the scores, head_dim^-1/2
  double dropout = 0;                    // on the attention weights
  DropoutKey dropout_key;
  Encoding encoding{};  // of q and k
  Visibility visibility{};
};

// q, k: [batch, time, heads, key_dim]; v: [batch, time, heads, value_dim]; any time >= 1. Token t
// sees those of the visible tokens that are of its own block; blocks are counted over the real
// tokens of each segment. Result: [batch, time, heads, value_dim] in q's type. Scores, softmax and
// sums in fp32, on every device by fp32 products, except where the library's fused attention serves
// (softmax without dropout, one width): with block 0, and, with plain visibility, on a GPU in half
// precision or at sizes that our kernels have no room for (a block of 128 with heads 128 wide). The
// kernels (block 1 to 256, plain visibility, one width, no positions named) keep q, k, v and the
// table of rotations only. An encoding's period, if any, must be `block`, and its first position a
// multiple of that; where rows are gathered (padding or segments) it has no effect.
//
// Dropout's masks are functions of a weight's number in its sample: with plain visibility
// (t * heads + head) * block + s, s counted in the block; else (head * 2^24 + t) * 2^24 + s, both
// counted over the sample's real tokens, so that padding does not change them.
[[nodiscard]] at::Tensor block_attention(const at::Tensor& q, const at::Tensor& k,
                                         const at::Tensor& v, const BlockAttentionOptions& options);

// New queries against keys and values that include earlier ones of the same block (a decoding
// cache): k: [batch, past + time, heads, key_dim]; v: [batch, past + time, heads, value_dim].
// Without gradients.
[[nodiscard]] at::Tensor attention_step(const at::Tensor& q, const at::Tensor& k,
                                        const at::Tensor& v, ScoreKind score, double scale);

}  // namespace transnormer::ops
