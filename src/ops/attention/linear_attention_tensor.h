// Linear attention in tensor operations: by chunks, for devices without a kernel of ours, and the
// second implementation that tests compare with; and where every token sees all.
#pragma once

#include <ATen/core/Tensor.h>

namespace transnormer::ops {

struct LinearAttentionGradients {
  at::Tensor q;
  at::Tensor k;
  at::Tensor v;
};

// Of k v^T before all chunks and of q do^T behind them, fp32 [batch, heads, key_dim, value_dim];
// undefined: zero.
struct SumsAround {
  at::Tensor before{};
  at::Tensor behind{};
};

// Shapes as linear_attention, causal; in double where q is, else in fp32. `state` may be undefined;
// else it is where the sum starts, and is brought up to date in place. decay: as
// LinearAttentionOptions has it.
[[nodiscard]] at::Tensor chunked_forward(const at::Tensor& q, const at::Tensor& k,
                                         const at::Tensor& v, const at::Tensor& state,
                                         const at::Tensor& decay = {});

// O_c = Q_c S + tril(Q_c K_c^T) V_c. With A = tril(dO V^T), P = tril(Q K^T), S the sum of k v^T
// before the chunk and D the sum of q do^T after it:
// dQ = dO S^T + A K, dK = V D^T + A^T Q, dV = K D + P^T dO. With decay, A and P have its powers as
// factors, lambda^(i-j); so have S and D on their way to each token.
[[nodiscard]] LinearAttentionGradients chunked_backward(const at::Tensor& q, const at::Tensor& k,
                                                        const at::Tensor& v,
                                                        const at::Tensor& d_out,
                                                        const SumsAround& around = {},
                                                        const at::Tensor& decay = {});

// [batch, time, heads, ..] each -> the sum of a b^T over all times, fp32 [batch, heads, .., ..].
[[nodiscard]] at::Tensor sum_of_times(const at::Tensor& a, const at::Tensor& b);

// lambda^exponents, fp32 [heads, 1, exponents, 1].
[[nodiscard]] at::Tensor powers(const at::Tensor& decay, const at::Tensor& exponents);

// Every token of a row sees all: with S = K^T V, O = Q S.
[[nodiscard]] at::Tensor bidirectional_forward(const at::Tensor& q, const at::Tensor& k,
                                               const at::Tensor& v);

// With D = Q^T dO: dQ = dO S^T, dK = V D^T, dV = K D.
[[nodiscard]] LinearAttentionGradients bidirectional_backward(const at::Tensor& q,
                                                              const at::Tensor& k,
                                                              const at::Tensor& v,
                                                              const at::Tensor& d_out);

}  // namespace transnormer::ops
