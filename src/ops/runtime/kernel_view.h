// Tensors as the kernels see them.
#pragma once

#include <ATen/ATen.h>

#include "ops/kernels/kernels.h"
#include "ops/runtime/cuda_library.h"

namespace transnormer::ops {

inline constexpr std::int64_t kGrain = 16384;  // elements that are worth a thread

// Whether TRANSNORMER_OPERATORS=plain in the environment wants LibTorch's own operations in place
// of kernels of ours: slower, to compare with. Read once.
[[nodiscard]] bool plain_operators();

// Whether kernels of ours work on elements of this type on this device. Half is for GPUs only.
[[nodiscard]] inline bool kernel_type(const at::Device& device, at::ScalarType type) {
  if (plain_operators()) {
    return false;
  }
  if (type == at::kFloat || type == at::kBFloat16) {
    return device.is_cpu() || (device.is_cuda() && cuda_library() != nullptr);
  }
  return type == at::kHalf && device.is_cuda() && cuda_library() != nullptr;
}

[[nodiscard]] inline bool kernel_type(const at::Tensor& x) {
  return kernel_type(x.device(), x.scalar_type());
}

// The kernels that work on a tensor of kernel_type.
[[nodiscard]] inline const kernels::Kernels& kernels_for(const at::Tensor& x) {
  return x.is_cuda() ? *cuda_library()->kernels : kernels::kernels();
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
