// The rank of attention matrices against the width of keys and a window. The matrix of n tokens
// made of w features a key has at most rank w without a mask, where scores are products; the causal
// mask, whose diagonal is not zero, restores full rank, and so may softmax.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "analyze/subject.h"
#include "analyze/weights.h"

namespace transnormer {

struct Ranks {
  std::int64_t rank = 0;      // singular values above the largest times n times the
                              // precision of the numbers
  double effective_rank = 0;  // exp of the entropy of the singular values over their sum
};

// Of singular values, fp64 [count], of a matrix of n rows and columns.
[[nodiscard]] Ranks ranks_of_singular_values(
    const at::Tensor& values, std::int64_t n,
    double precision = std::numeric_limits<double>::epsilon());
[[nodiscard]] Ranks ranks_of(const at::Tensor& matrix);  // [n, n], of fp32 numbers or fp64

// The matrix that q and k [n, width], as they meet, make: their products, or their softmax times
// `scale`. `window` > 0: causal, and each token sees itself and window - 1 before it.
[[nodiscard]] at::Tensor matrix_of(const at::Tensor& q, const at::Tensor& k, bool softmax,
                                   double scale, std::int64_t window);

struct RankRow {
  std::int64_t layer = 0;
  std::int64_t head = 0;
  // The first features of queries and keys that the matrix is made of; nothing where there are none
  // and the matrix is that of the layer's weights.
  std::optional<std::int64_t> key_dim;
  std::int64_t window = 0;  // the tokens that one sees at most; n: all
  bool masked = false;      // causal
  std::int64_t rank = 0;
  double effective_rank = 0;
};

// On the first window of text, for the selected layers and heads: key widths 1, 2, 4, .. and the
// whole one, without a mask, and with the causal mask for windows n, n/2, .. down to 16. The
// softmax is over what the mask leaves; all scores of `diag` count, those between blocks too.
[[nodiscard]] std::vector<RankRow> measure_rank(const Subject& subject, const Selection& selection);

}  // namespace transnormer
