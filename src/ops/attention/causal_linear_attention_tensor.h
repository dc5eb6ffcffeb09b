// The chunked form in tensor operations: for devices without a kernel of ours, and the second
// implementation that tests compare with.
#pragma once

#include <ATen/core/Tensor.h>

namespace transnormer::ops {

struct LinearAttentionGradients {
  at::Tensor q;
  at::Tensor k;
  at::Tensor v;
};

// Shapes as causal_linear_attention. `state` may be undefined; else it is where the sum starts, and
// is brought up to date in place.
[[nodiscard]] at::Tensor chunked_forward(const at::Tensor& q, const at::Tensor& k,
                                         const at::Tensor& v, const at::Tensor& state);

// O_c = Q_c S + tril(Q_c K_c^T) V_c. With A = tril(dO V^T), P = tril(Q K^T), S the sum of k v^T
// before the chunk and D the sum of q do^T after it:
// dQ = dO S^T + A K, dK = V D^T + A^T Q, dV = K D + P^T dO.
[[nodiscard]] LinearAttentionGradients chunked_backward(const at::Tensor& q, const at::Tensor& k,
                                                        const at::Tensor& v,
                                                        const at::Tensor& d_out);

}  // namespace transnormer::ops
