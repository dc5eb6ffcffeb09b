// What the linear attentions remember while decoding.
#pragma once

#include <utility>

#include "model/context.h"
#include "model/repeatable_state.h"
#include "ops/attention/linear_attention.h"

namespace transnormer {

// Its size does not depend on the number of tokens.
struct LinearState : AttentionState, RepeatableState {
  explicit LinearState(ops::LinearAttentionSums start) : sums(std::move(start)) {}
  [[nodiscard]] std::int64_t bytes() const override { return sums.bytes(); }
  void repeat(std::int64_t times) override {
    for (at::Tensor* const sum : {&sums.values, &sums.keys, &sums.maxima}) {
      repeat_row(*sum, times);
    }
  }
  ops::LinearAttentionSums sums;
};

}  // namespace transnormer
