// The Philox generator of util/philox.h in tensor arithmetic, for devices without a kernel of ours.
#pragma once

#include <ATen/core/Tensor.h>

#include "ops/dropout.h"
#include "ops/kernels/kernels.h"
#include "util/philox.h"

namespace transnormer::ops {

[[nodiscard]] PhiloxKey philox_key(const DropoutKey& key);

// 24-bit integers, int64 [samples, elements]: philox_uniform times 2^24 of each element's word.
[[nodiscard]] at::Tensor philox_bits(std::int64_t samples, std::int64_t elements,
                                     const DropoutKey& key, const at::Device& device);

// The same for elements named by their numbers; `sample` and `element`: int64, broadcastable;
// they count from key.first_sample and key.first_element.
[[nodiscard]] at::Tensor philox_bits_at(const at::Tensor& sample, const at::Tensor& element,
                                        const DropoutKey& key);

// An element is kept if its 24 bits are at least this: uniform >= p, exactly.
[[nodiscard]] std::uint32_t dropout_threshold(double p);

// The same mask for the kernels: row `sample` of the batch, from element `first` on.
[[nodiscard]] kernels::Mask kernel_mask(const DropoutKey& key, double p, std::int64_t sample,
                                        std::int64_t first);

// The scaled mask (0 or 1 / (1 - p), fp32) of such bits.
[[nodiscard]] at::Tensor dropout_mask_of(const at::Tensor& bits, double p);

}  // namespace transnormer::ops
