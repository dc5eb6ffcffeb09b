// What products add to the gradients of weights, in fp32.
#pragma once

#include <ATen/core/Tensor.h>

#include "ops/weights/weight.h"

namespace transnormer::ops {

// Where a weight's gradient is summed up: its own, or zeros for autograd to hand on.
[[nodiscard]] at::Tensor gradient_sum(const Weight& weight);

// sum += gradient^T input. sum: [out, in], fp32; gradient: [tokens, out], input: [tokens, in], of
// one type. On a CPU a half-precision product is rounded once, tile by tile of the rows of the sum,
// so that it is added from the cache.
void add_weight_gradient(const at::Tensor& sum, const at::Tensor& gradient,
                         const at::Tensor& input);

// sum += the sum of the gradient's rows. sum: [out], fp32; gradient: [tokens, out].
void add_bias_gradient(const at::Tensor& sum, const at::Tensor& gradient);

}  // namespace transnormer::ops
