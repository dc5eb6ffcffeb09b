// Attention in blocks by tensor operations, tiled over the queries: for devices and block sizes
// without a kernel of ours, and the second implementation that tests compare with.
#pragma once

#include <ATen/core/Tensor.h>

#include "ops/attention/block_attention.h"

namespace transnormer::ops {

struct BlockAttentionGradients {
  at::Tensor q;
  at::Tensor k;
  at::Tensor v;
};

[[nodiscard]] at::Tensor tiled_forward(const at::Tensor& q, const at::Tensor& k,
                                       const at::Tensor& v, const BlockAttentionOptions& options);

[[nodiscard]] BlockAttentionGradients tiled_backward(const at::Tensor& q, const at::Tensor& k,
                                                     const at::Tensor& v, const at::Tensor& d_out,
                                                     const BlockAttentionOptions& options);

}  // namespace transnormer::ops
