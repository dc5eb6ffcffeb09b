// LRPE by kernels, and the table of rotations that they read.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "ops/kernels/kernels.h"

namespace transnormer::ops {

// The rotations by position * theta that kernels::Lrpe reads: of each time, or of each position
// where a whole period or more of them comes up. An angle is put together from a coarse and a fine
// rotation, each formed in double: two products for each element of the table in place of two
// trigonometric functions. On a GPU each by itself, in its memory.
class LrpeTable {
 public:
  LrpeTable(const at::Tensor& theta, std::int64_t time, std::int64_t first_position,
            std::int64_t period);

  // unit: [dim], dense; it and the table must outlive the result.
  [[nodiscard]] kernels::Lrpe view(const at::Tensor& unit) const;

 private:
  std::int64_t first_ = 0;
  std::vector<double> position_;
  std::vector<float> rotation_;
  at::Tensor device_position_;  // the same on a GPU
  at::Tensor device_rotation_;
};

struct LrpeGradients {
  at::Tensor x;
  at::Tensor theta;  // fp64
};

[[nodiscard]] bool lrpe_kernel_fits(const at::Tensor& x);
[[nodiscard]] bool lrpe_backward_kernel_fits(const at::Tensor& x);

[[nodiscard]] at::Tensor lrpe_kernel(const at::Tensor& x, const LrpeTable& table,
                                     const at::Tensor& reflect);

[[nodiscard]] LrpeGradients lrpe_kernel_backward(const at::Tensor& gradient, const at::Tensor& x,
                                                 const LrpeTable& table, const at::Tensor& reflect);

}  // namespace transnormer::ops
