// Linear attention: o_t = sum_s lambda^(t-s) (phi(q_t) . phi(k_s)) v_s over the tokens s that t may
// see, as it is or divided by the sum of its weights, O(n) in time and memory. Katharopoulos et al.
// 2020; without the division, Qin et al. 2022, equation of NormAttention before its norm.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

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
  // The output is divided by max(sum_s phi(q_t) . phi(k_s), *floor), of features without LRPE,
  // which is in the numerator only; the gradient does not pass where the floor holds. None: no
  // division.
  std::optional<double> floor{};
  // q and k are logarithms: phi = e^x, exactly at any size (ops/attention/logarithms.h). A floor is
  // taken as 0 then. No feature map. With LRPE it needs a division and is done in double precision
  // by tensor operations, for |k| below 700.
  bool logarithms = false;
  at::Tensor decay{};  // lambda, fp32 [heads] on the device of q; undefined: 1. Without division
                       // and logarithms. Where all is visible, lambda^|t-s|
};

// q, k: [batch, time, heads, key_dim]; v: [batch, time, heads, value_dim]; any time >= 1. q and k
// go through the encoding first. Result: [batch, time, heads, value_dim] in q's type, but in fp32
// where q is half: a sum over thousands of tokens, which only the norm behind it tames, is beyond
// half's largest number. States, sums, divisors and, on every device, their products are fp32.
//
// Where the visibility is plain and the encoding names no positions, rows may be strided (the parts
// of a joint projection: see ops/attention/joint.h); then nothing is copied, and the gradients are
// the parts of one tensor too. The backward pass keeps q, k, v (the table of rotations; with a
// division the output and a number for each token and head) and makes the states again. Elsewhere
// padding is left out and segments become rows (ops/attention/groups.h). Sequences on several ranks
// (ops/attention/sequence_sums.h) are for plain visibility without division.
[[nodiscard]] at::Tensor linear_attention(const at::Tensor& q, const at::Tensor& k,
                                          const at::Tensor& v,
                                          const LinearAttentionOptions& options = {});

// What the causal one goes on from, fp32; of the tokens so far:
struct LinearAttentionSums {
  at::Tensor values;  // [batch, heads, key_dim, value_dim], the sum of phi(k) v^T
  at::Tensor keys;    // [batch, heads, key_dim], that of phi(k); undefined where nothing is divided
  at::Tensor maxima;  // [batch, heads, key_dim], of logarithms: both are in units of e^maxima

  // Of no tokens.
  LinearAttentionSums(std::int64_t batch, std::int64_t heads, std::int64_t key_dim,
                      std::int64_t value_dim, const LinearAttentionOptions& options,
                      at::Device device);
  [[nodiscard]] std::int64_t bytes() const;
};

// The causal one, going on from `sums`, which are brought up to date in place. Without gradients.
[[nodiscard]] at::Tensor linear_attention_step(const at::Tensor& q, const at::Tensor& k,
                                               const at::Tensor& v, LinearAttentionSums& sums,
                                               const LinearAttentionOptions& options = {});

}  // namespace transnormer::ops
