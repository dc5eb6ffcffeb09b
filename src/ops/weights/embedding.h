// The rows of a table that tokens stand for.
#pragma once

#include <ATen/core/Tensor.h>

#include "ops/weights/weight.h"

namespace transnormer::ops {

// What a backward pass would add to the rows of a table: rows[i] to row number tokens[i].
struct RowGradients {
  at::Tensor tokens;  // int64 [n], each once; undefined: there were none
  at::Tensor rows;    // fp32 [n, dim]
};

// scale * weight[tokens]. tokens: int64, any shape; weight: [words, dim], fp32. Result
// [.., dim], fp32. The gradient of a parameter is added row by row to what it has, in an order that
// does not depend on the number of threads; with `kept`, which must live until then, it is left
// there instead. Throws c10::Error for a token that is no row.
[[nodiscard]] at::Tensor scaled_embedding(const Weight& weight, const at::Tensor& tokens,
                                          double scale, RowGradients* kept = nullptr);

// sum[tokens[i]] += rows[i]. sum: [words, dim], fp32.
void add_rows(const at::Tensor& sum, const RowGradients& gradients);

}  // namespace transnormer::ops
