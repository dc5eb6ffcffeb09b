// The affine map whose product is in a chosen type.
#pragma once

#include <ATen/core/Tensor.h>

#include "config/config.h"
#include "ops/weights/weight.h"

namespace transnormer::ops {

// y = x W^T + b. x: [.., in]; weight: [out, in], fp32; bias: [out], fp32, or undefined. Result
// [.., out] in the type `compute`, with a row pitch where that helps; sums inside the product are
// fp32. The gradients of parameters
// are added in fp32 to what they have (see Weight::gathers_gradient).
[[nodiscard]] at::Tensor linear(const at::Tensor& x, const Weight& weight, const Weight& bias,
                                at::ScalarType compute);

// linear(gated(gate_up, activation), ..), keeping gate_up only: what the gate lets through is made
// again in the backward pass. gate_up: [.., 2 * in], gate and up side by side.
[[nodiscard]] at::Tensor gated_linear(const at::Tensor& gate_up, Activation activation,
                                      const Weight& weight, const Weight& bias,
                                      at::ScalarType compute);

}  // namespace transnormer::ops
