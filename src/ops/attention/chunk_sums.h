// Linear attention over whole chunks: what a token takes from the chunks before its own.
#pragma once

#include <ATen/core/Tensor.h>

namespace transnormer::ops {

// o_t = q_t . (before + sum of k_s v_s^T over the tokens s of the chunks before t's own).
// q, k: [rows, chunks, length, key_dim], fp32; v: [rows, chunks, length, value_dim] of any type;
// before: fp32 [rows, key_dim, value_dim], undefined for zero. Result: fp32, v's sizes. O(chunks);
// sums in fp32, in the chunks' order, so that later ones change no bit. The backward pass keeps q,
// k and v only and makes the sums again. No gradient goes to `before`.
[[nodiscard]] at::Tensor attend_earlier_chunks(const at::Tensor& q, const at::Tensor& k,
                                               const at::Tensor& v, const at::Tensor& before = {});

}  // namespace transnormer::ops
