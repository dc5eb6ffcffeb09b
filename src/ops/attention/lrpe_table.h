// LRPE by kernels, and the table of rotations that they read.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <vector>

#include "ops/kernels/kernels.h"

namespace transnormer::ops {

// Where the tokens of a row stand.
struct Positions {
  std::int64_t first = 0;   // of time 0; the others follow one by one
  std::int64_t period = 0;  // above 0: positions are taken modulo it
  at::Tensor each;  // int64 [time], of each by itself in the place of first + t; or undefined
};

struct PositionRange {
  std::int64_t first;
  std::int64_t count;
};

// int64 [time], what `positions` say.
[[nodiscard]] at::Tensor position_numbers(const Positions& positions, std::int64_t time,
                                          const at::Device& device);

// The rotations by position * theta that kernels::Lrpe reads: of each time, or of each position
// where a whole period or more of them comes up one by one. An angle is put together from a coarse
// and a fine rotation, each formed in double: two products for each element of the table in place
// of two trigonometric functions. On a GPU each by itself, in its memory. The table of one time on
// a CPU, which decoding makes for each layer and token, lies in the object and asks for no memory.
class LrpeTable {
 public:
  LrpeTable() = default;  // of no LRPE
  LrpeTable(const at::Tensor& theta, const at::Tensor& reflect, std::int64_t time,
            const Positions& positions);

  [[nodiscard]] bool empty() const { return !unit_.defined(); }
  // The table must outlive the result.
  [[nodiscard]] kernels::Lrpe view() const;

 private:
  // Of one time; false where that takes memory.
  [[nodiscard]] bool fill_one(const at::Tensor& theta, const Positions& positions);
  // Of the given positions, all of which lie in the range.
  void fill(const double* angles, std::int64_t count, const std::int64_t* numbers,
            std::int64_t rows, const PositionRange& range);

  at::Tensor unit_;
  bool one_ = false;
  double one_position_ = 0;
  std::array<float, 256> one_rotation_{};  // of heads up to this width
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

[[nodiscard]] at::Tensor lrpe_kernel(const at::Tensor& x, const LrpeTable& table);

[[nodiscard]] LrpeGradients lrpe_kernel_backward(const at::Tensor& gradient, const at::Tensor& x,
                                                 const LrpeTable& table);

}  // namespace transnormer::ops
