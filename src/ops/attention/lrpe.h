// Linearised relative positional encoding: a fixed reflection, then a rotation by learned angles.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace transnormer::ops {

// x: [batch, time, heads, head_dim]; theta: [head_dim / 2], fp32; reflect: unit vector [head_dim],
// fp32. y = x - 2 (x.u) u, then each pair (2i, 2i+1) is rotated by position * theta_i.
// The position of time t is first_position + t, or as `positions` (int64 [batch, time]) say where
// they are defined, taken modulo `period` where period > 0.
// Angles are formed in double. Differentiable in x and theta. Result in x's type; doubles are turned
// in double.
[[nodiscard]] at::Tensor lrpe(const at::Tensor& x, const at::Tensor& theta,
                              const at::Tensor& reflect, std::int64_t first_position,
                              std::int64_t period = 0, const at::Tensor& positions = {});

}  // namespace transnormer::ops
