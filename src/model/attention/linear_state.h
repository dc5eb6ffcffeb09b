// What the linear attentions remember while decoding.
#pragma once

#include <utility>

#include "model/context.h"
#include "ops/attention/linear_attention.h"

namespace transnormer {

// Its size does not depend on the number of tokens.
struct LinearState : AttentionState {
  explicit LinearState(ops::LinearAttentionSums start) : sums(std::move(start)) {}
  [[nodiscard]] std::int64_t bytes() const override { return sums.bytes(); }
  ops::LinearAttentionSums sums;
};

}  // namespace transnormer
