// Element-wise functions with backward passes that keep their inputs only.
#pragma once

#include <ATen/core/Tensor.h>

#include "config/config.h"
#include "ops/kernels/kernels.h"

namespace transnormer::ops {

[[nodiscard]] at::Tensor activate(const at::Tensor& x, Activation activation);

// act(gate) * up, the middle of a GLU. gate_up: [.., 2 * width], gate and up side by side; result
// [.., width] in the same type, computed in fp32. It and the gradient may have a row pitch (see
// ops/runtime/row_pitch.h), and are read with one without a copy.
[[nodiscard]] at::Tensor gated(const at::Tensor& gate_up, Activation activation);

// The gradient of gate_up, from that of gated(gate_up).
[[nodiscard]] at::Tensor gated_backward(const at::Tensor& gradient, const at::Tensor& gate_up,
                                        Activation activation);

// phi of linear attention, element by element: elu(x) + 1, elu(x), relu(x), silu(x) or e^x.
[[nodiscard]] at::Tensor feature_map(const at::Tensor& x, FeatureMap map);

// The kernels' name of it.
[[nodiscard]] kernels::Feature feature_of(FeatureMap map);

}  // namespace transnormer::ops
