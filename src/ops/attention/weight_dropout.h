// Dropout masks of the weights of attentions whose keys are not simply the tokens.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "ops/attention/visibility.h"
#include "ops/dropout.h"

namespace transnormer::ops {

// Queries [batch, time] in so many heads, each against the `keys` keys numbered from `first_key`
// on.
struct WeightShape {
  std::int64_t batch = 0;
  std::int64_t time = 0;
  std::int64_t heads = 0;
  std::int64_t keys = 0;
  std::int64_t first_key = 0;
};

// The scaled mask, 0 or 1 / (1 - p), fp32 [batch, time, heads, keys]; p above 0. A weight's number
// in its sample is (key * 2^24 + t) * heads + head, t counted over the sample's real tokens: it
// depends neither on the padding nor on how many keys there are.
[[nodiscard]] at::Tensor weight_dropout(const WeightShape& shape, const Drop& drop,
                                        const Visibility& visibility, const at::Device& device);

}  // namespace transnormer::ops
