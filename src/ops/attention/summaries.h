// Softmax attention to a few keys and values that sum up a sequence.
#pragma once

#include <ATen/core/Tensor.h>

namespace transnormer::ops {

// q: [rows, time, heads, dim]; k: [rows, keys, heads, dim]; v: [rows, keys, heads, value_dim] ->
// softmax(scale q·k) v, [rows, time, heads, value_dim] in q's type; every query sees all keys.
// counts: int64 [rows], how many of the keys each row has, at least 1; undefined: all. mask: a
// scaled dropout mask of the weights, fp32 [rows, time, heads, keys], or undefined. Scores, softmax
// and sums in fp32. Without a mask by the library's fused attention, whose backward pass keeps no
// weights.
[[nodiscard]] at::Tensor attend_to_summaries(const at::Tensor& q, const at::Tensor& k,
                                             const at::Tensor& v, double scale,
                                             const at::Tensor& counts, const at::Tensor& mask);

}  // namespace transnormer::ops
