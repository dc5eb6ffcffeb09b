// Element-wise functions with backward passes that keep their inputs only.
#pragma once

#include <ATen/core/Tensor.h>

#include "config/config.h"

namespace transnormer::ops {

[[nodiscard]] at::Tensor activate(const at::Tensor& x, Activation activation);

// act(gate) * up, the middle of a GLU. Computed in fp32, result in gate's type.
[[nodiscard]] at::Tensor gated(const at::Tensor& gate, const at::Tensor& up, Activation activation);

// phi of linear attention: elu(x) + 1 or elu(x).
[[nodiscard]] at::Tensor feature_map(const at::Tensor& x, FeatureMap map);

}  // namespace transnormer::ops
