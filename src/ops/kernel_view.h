// Tensors as the CPU kernels see them.
#pragma once

#include <ATen/ATen.h>

#include "ops/kernels/kernels.h"

namespace transnormer::ops {

inline constexpr std::int64_t kGrain = 16384;  // elements that are worth a thread

[[nodiscard]] inline bool kernel_type(const at::Tensor& x) {
  return x.is_cpu() && (x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16);
}

// `x` dense and of the type of `like`, as the kernels want their further operands.
[[nodiscard]] inline at::Tensor dense_like(const at::Tensor& x, const at::Tensor& like) {
  return x.to(like.scalar_type()).contiguous();
}

// From element `first` on.
[[nodiscard]] inline kernels::In in(const at::Tensor& x, std::int64_t first = 0) {
  const auto* bytes = static_cast<const char*>(x.const_data_ptr());
  return {bytes + first * static_cast<std::int64_t>(x.element_size()),
          x.scalar_type() == at::kBFloat16};
}

[[nodiscard]] inline kernels::Out out(const at::Tensor& x, std::int64_t first = 0) {
  auto* bytes = static_cast<char*>(x.mutable_data_ptr());
  return {bytes + first * static_cast<std::int64_t>(x.element_size()),
          x.scalar_type() == at::kBFloat16};
}

// A tensor for a kernel to fill, dense whatever the strides of `like`.
[[nodiscard]] inline at::Tensor empty_dense(const at::Tensor& like) {
  return at::empty(like.sizes(), like.options(), at::MemoryFormat::Contiguous);
}

}  // namespace transnormer::ops
