// Measures and limits of gradients, made on their device: nothing here waits for it.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace transnormer {

// The 2-norm of each tensor, fp64 [gradients].
[[nodiscard]] at::Tensor gradient_norms(const std::vector<at::Tensor>& gradients);

// What gradient_norms() does where the device adds up accurately, in few launches.
[[nodiscard]] at::Tensor fused_gradient_norms(const std::vector<at::Tensor>& gradients);

// The 2-norm of all tensors together, fp64 scalar. Not finite where any element is not.
[[nodiscard]] at::Tensor global_norm(const at::Tensor& norms);

// Scales the gradients so that their global norm is at most `max_norm`; 0 switches it off.
void clip_gradients(const std::vector<at::Tensor>& gradients, const at::Tensor& global_norm,
                    double max_norm);

// Multiplies by a factor that lies on the device, without reading it there.
void scale_gradients(const std::vector<at::Tensor>& gradients, const at::Tensor& factor);

}  // namespace transnormer
