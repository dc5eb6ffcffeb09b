// Activation checkpointing: a piece of the model keeps its input only and is run again in the
// backward pass. Chen et al. 2016. Exact, because dropout is a function of counters.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace transnormer {

// piece(x), differentiable in x and in `parameters`, which must hold every parameter that the piece
// uses. The piece must outlive the backward pass and give the same result when called again.
[[nodiscard]] at::Tensor recomputed(const at::Tensor& x, const std::vector<at::Tensor>& parameters,
                                    const std::function<at::Tensor(const at::Tensor&)>& piece);

}  // namespace transnormer
