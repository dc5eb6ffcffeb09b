// Matrices whose rows lie a multiple of 16 bytes apart: a GPU's products in half precision are many
// times slower on others. The padding is never read, and no part of any size that is told.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace transnormer::ops {

inline constexpr std::int64_t kRowBytes = 16;

// Elements from one row of `width` to the next, in a tensor of these options.
[[nodiscard]] std::int64_t row_pitch(std::int64_t width, const at::TensorOptions& options);

// To be filled: a tensor [.., width] whose rows are row_pitch apart, dense where that is the width.
[[nodiscard]] at::Tensor empty_rows(at::IntArrayRef sizes, const at::TensorOptions& options);

// `x` as it is where its rows are dense in themselves and equal strides apart, else a dense copy.
[[nodiscard]] at::Tensor even_rows(const at::Tensor& x);

// Elements from one row to the next of such a tensor.
[[nodiscard]] std::int64_t row_stride_of(const at::Tensor& x);

}  // namespace transnormer::ops
