// What the tokens of a sequence may see of it.
#pragma once

#include <ATen/core/Tensor.h>

namespace transnormer::ops {

// Token t sees token s where both are real and of one segment and, if `causal`, s <= t. Neither
// what stands at padding nor how much of it there is reaches any other token; outputs and gradients
// at padding are zero.
struct Visibility {
  bool causal = true;
  at::Tensor padding{};   // bool [batch, time], true at padding; undefined: there is none
  at::Tensor segments{};  // int64 [batch, time], of any values; undefined: one segment a row

  [[nodiscard]] bool whole_rows() const { return !padding.defined() && !segments.defined(); }
  // Every token sees itself and all before it: what the kernels are made for.
  [[nodiscard]] bool plain() const { return causal && whole_rows(); }
};

}  // namespace transnormer::ops
