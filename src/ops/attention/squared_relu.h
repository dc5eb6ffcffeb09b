// Squared-ReLU attention with a learned offset for each distance, as gated attention units have it
// (Hua et al. 2022): o_i = sum_j relu(scale q_i.k_j + w(j - i))^2 v_j. No sum of weights divides
// it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace transnormer::ops {

struct SquaredReluOptions {
  double scale = 1;
  bool causal = true;      // j <= i
  std::int64_t tile = 64;  // queries whose scores are made at a time
};

// q: [rows, queries, key_dim], k: [rows, keys, key_dim], fp32; v: [rows, keys, value_dim] of any
// type. The queries stand at the last of the keys' places. offsets: fp32 [queries + keys - 1],
// w(distance) at distance + keys - 1. Result: fp32 [rows, queries, value_dim]; products in fp32. A
// key whose value is zero reaches nothing. The backward pass keeps the operands only.
[[nodiscard]] at::Tensor squared_relu_attention(const at::Tensor& q, const at::Tensor& k,
                                                const at::Tensor& v, const at::Tensor& offsets,
                                                const SquaredReluOptions& options);

}  // namespace transnormer::ops
