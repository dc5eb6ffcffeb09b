// Tensors as the kernels see them.
#pragma once

#include <ATen/ATen.h>

#include "ops/kernels/kernels.h"
#include "ops/runtime/kernel_table.h"
#include "ops/runtime/operator_choices.h"

namespace transnormer::ops {

inline constexpr std::int64_t kGrain = 16384;  // elements that are worth a thread

// Whether the kernel, an entry of the table as &kernels::Kernels::feature, works on elements of this
// type on this device: it is in use there, and half is for GPUs only.
template <typename Function>
[[nodiscard]] bool kernel_serves(const at::Device& device, at::ScalarType type,
                                 Function* kernels::Kernels::*kernel) {
  const bool known =
      type == at::kFloat || type == at::kBFloat16 || (type == at::kHalf && device.is_cuda());
  return known && operator_choices().kernels && kernels_in_use(device.type()).*kernel != nullptr;
}

template <typename Function>
[[nodiscard]] bool kernel_serves(const at::Tensor& x, Function* kernels::Kernels::*kernel) {
  return kernel_serves(x.device(), x.scalar_type(), kernel);
}

// `x` dense and of the type of `like`, as the kernels want their further operands.
[[nodiscard]] inline at::Tensor dense_like(const at::Tensor& x, const at::Tensor& like) {
  return x.to(like.scalar_type()).contiguous();
}

[[nodiscard]] inline kernels::Element element_type(const at::Tensor& x) {
  switch (x.scalar_type()) {
    case at::kBFloat16:
      return kernels::Element::bf16;
    case at::kHalf:
      return kernels::Element::f16;
    default:
      return kernels::Element::f32;
  }
}

// From element `first` on.
[[nodiscard]] inline kernels::In in(const at::Tensor& x, std::int64_t first = 0) {
  const auto* bytes = static_cast<const char*>(x.const_data_ptr());
  return {bytes + first * static_cast<std::int64_t>(x.element_size()), element_type(x)};
}

[[nodiscard]] inline kernels::Out out(const at::Tensor& x, std::int64_t first = 0) {
  auto* bytes = static_cast<char*>(x.mutable_data_ptr());
  return {bytes + first * static_cast<std::int64_t>(x.element_size()), element_type(x)};
}

// A tensor for a kernel to fill, dense whatever the strides of `like`.
[[nodiscard]] inline at::Tensor empty_dense(const at::Tensor& like) {
  return at::empty(like.sizes(), like.options(), at::MemoryFormat::Contiguous);
}

}  // namespace transnormer::ops
