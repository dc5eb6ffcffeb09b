// The residual stream, fp32, and what goes on at its sums: dropout of the branch that comes in, the
// norm of what goes out. One pass over memory forward, one backward.
#pragma once

#include <ATen/core/Tensor.h>

#include "ops/dropout.h"

namespace transnormer::ops {

// x + dropout(y). x: [samples, .., dim], fp32; y: the same shape, of any type.
[[nodiscard]] at::Tensor residual(const at::Tensor& x, const at::Tensor& y, const Drop& drop);

struct StreamAndNorm {
  at::Tensor stream;  // fp32
  at::Tensor normed;  // SimpleRMSNorm of the stream
};

// The stream x + dropout(y), or x itself where y is undefined, and its norm in the type `result`.
// Keeps the stream only; the gradients of both meet in one pass.
[[nodiscard]] StreamAndNorm residual_srms_norm(const at::Tensor& x, const at::Tensor& y,
                                               const Drop& drop, double eps, at::ScalarType result);

}  // namespace transnormer::ops
