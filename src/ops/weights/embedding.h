// The rows of a table that tokens stand for.
#pragma once

#include <ATen/core/Tensor.h>

#include "ops/weights/weight.h"

namespace transnormer::ops {

// scale * weight[tokens]. tokens: int64, any shape; weight: [words, dim], fp32. Result
// [.., dim], fp32. The gradient of a parameter is added row by row to what it has, in an order that
// does not depend on the number of threads. Throws c10::Error for a token that is no row.
[[nodiscard]] at::Tensor scaled_embedding(const Weight& weight, const at::Tensor& tokens,
                                          double scale);

}  // namespace transnormer::ops
