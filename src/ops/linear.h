// y = x W^T + b with fp32 master weights and the product in a chosen type.
#pragma once

#include <ATen/core/Tensor.h>

namespace transnormer::ops {

// x: [.., in]; weight: [out, in], fp32; bias: [out], fp32 or undefined. The product is made in
// `compute` (kFloat, kBFloat16, kHalf), its result is of that type. d(weight) and d(bias) are fp32.
// Half on a CPU rounds its operands to half and multiplies in fp32 (the CPU's half product is
// slow).
[[nodiscard]] at::Tensor linear(const at::Tensor& x, const at::Tensor& weight,
                                const at::Tensor& bias, at::ScalarType compute);

}  // namespace transnormer::ops
