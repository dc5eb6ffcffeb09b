// Attention in blocks by tensor operations, tiled over the queries: for what has no kernel of ours,
// and the second implementation that tests compare with.
#pragma once

#include <ATen/core/Tensor.h>

#include "ops/attention/block_attention.h"
#include "ops/attention/groups.h"

namespace transnormer::ops {

struct BlockAttentionGradients {
  at::Tensor q;
  at::Tensor k;
  at::Tensor v;
};

// Of the options' visibility these heed `causal` only. `tokens`: null, or which ones the operands'
// rows are made of; then `block` must be 0.
[[nodiscard]] at::Tensor tiled_forward(const at::Tensor& q, const at::Tensor& k,
                                       const at::Tensor& v, const BlockAttentionOptions& options,
                                       const RowsOfTokens* tokens = nullptr);

[[nodiscard]] BlockAttentionGradients tiled_backward(const at::Tensor& q, const at::Tensor& k,
                                                     const at::Tensor& v, const at::Tensor& d_out,
                                                     const BlockAttentionOptions& options,
                                                     const RowsOfTokens* tokens = nullptr);

}  // namespace transnormer::ops
