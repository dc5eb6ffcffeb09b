// What tells the model where a token stands, beside LRPE.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace transnormer {

// Sinusoidal positions: row t is [sin(a), cos(a)] with a_i = (t + 2) * 10000^(-i / (dim/2 - 1)),
// i < dim/2; a last odd column is 0. The first position is number 2, as in the published model.
// Keeps the rows made last, since training asks for the same ones again and again, and decoding for
// one after the other.
class SinusoidalPositions {
 public:
  explicit SinusoidalPositions(std::int64_t dim) : dim_(dim) {}

  // Rows [first, first + count), fp32 [count, dim]; angles are formed in double.
  [[nodiscard]] at::Tensor rows(std::int64_t first, std::int64_t count, at::Device device);
  // Those of `positions`, int64 [batch, time] -> fp32 [batch, time, dim]. Waits for the device.
  [[nodiscard]] at::Tensor rows(const at::Tensor& positions);

 private:
  std::int64_t dim_;
  std::int64_t first_ = 0;
  at::Tensor rows_;
};

}  // namespace transnormer
