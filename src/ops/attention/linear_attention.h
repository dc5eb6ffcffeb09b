// Linear attention without a denominator: o_t = q_t . sum_s k_s v_s^T over the tokens s that t may
// see, O(n) in time and memory. Qin et al. 2022, equation of NormAttention before its norm.
#pragma once

#include <ATen/core/Tensor.h>

#include "dist/group.h"
#include "ops/attention/encoding.h"
#include "ops/attention/visibility.h"

namespace transnormer::ops {

struct LinearAttentionOptions {
  Encoding encoding{};  // of q and k
  Visibility visibility{};
  // Whose ranks hold the sequences, each a neighbouring part of the same length; null: they are
  // whole. It must live until the backward pass has gone; all ranks go through both passes.
  const dist::Group* sequence = nullptr;
};

// q, k: [batch, time, heads, key_dim]; v: [batch, time, heads, value_dim]; any time >= 1. q and k
// go through the encoding first. Result: [batch, time, heads, value_dim] in q's type, but in fp32
// where q is half: a sum over thousands of tokens, which only the norm behind it tames, is beyond
// half's largest number. States, sums and, on every device, their products are fp32.
//
// Where the visibility is plain and the encoding names no positions, rows may be strided (the parts
// of a joint projection: see ops/attention/joint.h); then nothing is copied, and the gradients are
// the parts of one tensor too. The backward pass keeps q, k, v (and the table of rotations) only
// and makes the states again. Elsewhere padding is left out and segments become rows
// (ops/attention/groups.h). Sequences on several ranks (ops/attention/sequence_sums.h) are for
// plain visibility.
[[nodiscard]] at::Tensor linear_attention(const at::Tensor& q, const at::Tensor& k,
                                          const at::Tensor& v,
                                          const LinearAttentionOptions& options = {});

// The causal one, going on from `state` ([batch, heads, key_dim, value_dim], fp32; the sum of k v^T
// so far), which is brought up to date in place. Without gradients.
[[nodiscard]] at::Tensor linear_attention_step(const at::Tensor& q, const at::Tensor& k,
                                               const at::Tensor& v, at::Tensor& state,
                                               const Encoding& encoding = {});

}  // namespace transnormer::ops
