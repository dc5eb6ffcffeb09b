// What queries and keys go through before an attention meets them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "config/config.h"

namespace transnormer::ops {

// A feature map and then LRPE (see ops::lrpe), either of which may be left out.
struct Encoding {
  std::optional<FeatureMap> feature{};
  at::Tensor theta{};    // undefined: no LRPE
  at::Tensor reflect{};  // as long as theta is defined
  std::int64_t first_position = 0;
  std::int64_t period = 0;  // of the blocks, where they begin at its multiples; 0: none
  at::Tensor positions{};   // int64 [batch, time], in the place of first_position + t; or undefined
};

// x [batch, time, heads, dim] encoded, by an operator of its own for each step and rounded to x's
// type in between. The attentions do the same to their operands on the fly, in fp32.
[[nodiscard]] at::Tensor encode(const at::Tensor& x, const Encoding& encoding);

}  // namespace transnormer::ops
