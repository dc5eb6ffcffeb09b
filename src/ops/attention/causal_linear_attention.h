// Causal linear attention without a denominator: o_t = q_t . sum_{s<=t} k_s v_s^T, by chunks, O(n)
// in time and memory. Qin et al. 2022, equation of NormAttention before its norm.
#pragma once

#include <ATen/core/Tensor.h>

#include "ops/attention/encoding.h"

namespace transnormer::ops {

// q, k: [batch, time, heads, key_dim]; v: [batch, time, heads, value_dim]; any time >= 1. Rows may
// be strided (the parts of a joint projection: see ops/joint.h); then nothing is copied, and the
// gradients are the parts of one tensor too. q and k go through `encoding` first.
// Result: [batch, time, heads, value_dim] in q's type, but in fp32 where q is half: a sum over
// thousands of tokens, which only the norm behind it tames, is beyond half's largest number.
// States, sums and, on every device, their products are fp32. The backward pass keeps q, k, v (and
// the table of rotations) only and makes the states again.
[[nodiscard]] at::Tensor causal_linear_attention(const at::Tensor& q, const at::Tensor& k,
                                                 const at::Tensor& v,
                                                 const Encoding& encoding = {});

// The same, going on from `state` ([batch, heads, key_dim, value_dim], fp32; the sum of k v^T so
// far), which is brought up to date in place. Without gradients.
[[nodiscard]] at::Tensor causal_linear_attention_step(const at::Tensor& q, const at::Tensor& k,
                                                      const at::Tensor& v, at::Tensor& state,
                                                      const Encoding& encoding = {});

}  // namespace transnormer::ops
