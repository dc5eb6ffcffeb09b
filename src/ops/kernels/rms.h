// SimpleRMSNorm of one row, from its sums: what the norm alone and the norm of the residual stream
// have in common.
#pragma once

#include "ops/kernels/simd.h"

namespace transnormer::ops::kernels::TRANSNORMER_ISA {

// 1 / sqrt(mean(x^2) + eps), from the sum of squares.
inline float inverse_rms(float squares, std::int64_t dim, float eps) {
  return 1.F / __builtin_sqrtf(squares / static_cast<float>(dim) + eps);
}

// How a gradient reaches the row through its norm.
struct NormSlope {
  float along;
  float scale;

  [[nodiscard]] F through(F gradient, F x) const { return (gradient - x * along) * scale; }
};

// `products`: the sum of x times the gradient.
inline NormSlope norm_slope(float squares, float products, std::int64_t dim, float eps) {
  const float scale = inverse_rms(squares, dim, eps);
  return {products / static_cast<float>(dim) * scale * scale, scale};
}

}  // namespace transnormer::ops::kernels::TRANSNORMER_ISA
