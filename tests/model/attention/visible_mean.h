// Means over what a token sees, written plainly, for the attentions that live in the tests.
#pragma once

#include <ATen/ATen.h>

#include "ops/attention/visibility.h"

namespace transnormer::test {

// Weights [batch, time, time], each row the same for all tokens that a token sees: those of its own
// segment, none at padding, none behind it where causal, and of them the nearest: less than
// `window` real tokens away. A token that sees nothing has zeros.
inline at::Tensor visible_mean(const at::Tensor& like, const ops::Visibility& visibility,
                               std::int64_t window) {
  const std::int64_t batch = like.size(0);
  const std::int64_t time = like.size(1);
  const at::Tensor real = visibility.padding.defined()
                              ? visibility.padding.logical_not()
                              : at::ones({batch, time}, at::device(like.device()).dtype(at::kBool));
  const at::Tensor place = real.cumsum(1);
  const at::Tensor behind = place.unsqueeze(2) - place.unsqueeze(1);
  at::Tensor seen = (behind.abs() < window).logical_and(real.unsqueeze(1));
  seen = seen.logical_and(real.unsqueeze(2));
  if (visibility.causal) {
    seen = seen.logical_and(behind >= 0);
  }
  if (visibility.segments.defined()) {
    seen = seen.logical_and(visibility.segments.unsqueeze(1) == visibility.segments.unsqueeze(2));
  }
  const at::Tensor weights = seen.to(at::kFloat);
  return weights / weights.sum(2, /*keepdim=*/true).clamp_min(1);
}

}  // namespace transnormer::test
