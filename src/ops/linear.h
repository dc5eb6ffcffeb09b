// The affine map whose product is in a chosen type.
#pragma once

#include <ATen/core/Tensor.h>

#include "ops/weight.h"

namespace transnormer::ops {

// y = x W^T + b. x: [.., in]; weight: [out, in], fp32; bias: [out], fp32, or undefined. Result
// [.., out] in the type `compute`; sums inside the product are fp32. The gradients of parameters
// are added in fp32 to what they have (see Weight::gathers_gradient).
[[nodiscard]] at::Tensor linear(const at::Tensor& x, const Weight& weight, const Weight& bias,
                                at::ScalarType compute);

}  // namespace transnormer::ops
