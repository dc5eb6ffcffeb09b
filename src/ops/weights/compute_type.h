// What the type of the matrix products means on each device.
#pragma once

#include <ATen/ATen.h>

namespace transnormer::ops {

// A CPU's half product is about a hundred times slower than its single-precision one.
[[nodiscard]] inline bool half_by_float(const at::Device& device, at::ScalarType compute) {
  return compute == at::kHalf && device.is_cpu();
}

// `x` as an operand of a product in `compute`. Half on a CPU: rounded to half, held in fp32.
[[nodiscard]] inline at::Tensor product_operand(const at::Tensor& x, at::ScalarType compute) {
  const at::Tensor rounded = x.to(compute);
  return half_by_float(x.device(), compute) ? rounded.to(at::kFloat) : rounded;
}

}  // namespace transnormer::ops
