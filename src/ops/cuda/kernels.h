// The GPU's kernels and which attentions they serve, see ops/runtime/cuda_library.h.
#pragma once

#include "ops/kernels/kernels.h"

namespace transnormer::ops::cuda {

[[nodiscard]] const kernels::Kernels& kernels_of_device();
[[nodiscard]] bool linear_attention_fits(const kernels::LinearAttention&);
[[nodiscard]] bool block_attention_fits(const kernels::BlockAttention&);

}  // namespace transnormer::ops::cuda
