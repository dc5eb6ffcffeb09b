// Dropout whose mask is a function of counters, so that it is the same for any micro-batch size,
// thread count and device, and can be made again instead of kept.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "ops/kernels/kernels.h"

namespace transnormer::ops {

// Names one use of dropout. Philox key: (seed, update, layer, site); counter: (global sample,
// element of that sample).
struct DropoutKey {
  std::uint64_t seed = 0;
  std::int64_t update = 0;
  std::int64_t layer = 0;  // -1: the embedding
  std::int64_t site = 0;
  std::int64_t first_sample = 0;  // global number of row 0
  // Number of a row's first element in its sample: above 0 where rows are parts of samples.
  std::int64_t first_element = 0;
  // Where the update and the first sample stand instead, in the GPU's memory: what is captured then
  // makes other masks each time that it is replayed. Our kernels only; else throws c10::Error.
  const kernels::LiveCounters* live = nullptr;
};

// One use of dropout and how much it drops.
struct Drop {
  double p = 0;
  DropoutKey key = {};
};

// x: [samples, ...]. Zeroes each element with probability p and scales the others by 1/(1-p).
// p = 0 returns x itself. Differentiable; the backward pass makes the mask again.
[[nodiscard]] at::Tensor dropout(const at::Tensor& x, double p, const DropoutKey& key);

// The mask alone, scaled: 0 or 1/(1-p), fp32, of shape [samples, elements].
[[nodiscard]] at::Tensor dropout_mask(std::int64_t samples, std::int64_t elements, double p,
                                      const DropoutKey& key, const at::Device& device);

}  // namespace transnormer::ops
