#include "model/repeatable_state.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace transnormer {

bool can_repeat(const AttentionState& state) {
  const auto* const repeatable = dynamic_cast<const RepeatableState*>(&state);
  return repeatable != nullptr && repeatable->can_repeat();
}

void repeat(AttentionState& state, std::int64_t times) {
  dynamic_cast<RepeatableState&>(state).repeat(times);
}

bool can_repeat(const ModelState& state) {
  return std::ranges::all_of(state.layers, [](const auto& layer) { return can_repeat(*layer); });
}

void repeat(ModelState& state, std::int64_t times) {
  for (const auto& layer : state.layers) {
    repeat(*layer, times);
  }
}

void repeat_row(at::Tensor& x, std::int64_t times) {
  if (x.defined()) {
    x = x.repeat_interleave(times, 0);
  }
}

}  // namespace transnormer
