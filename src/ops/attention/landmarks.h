// What Nystroem's method needs: means of segments, and an iterated pseudo-inverse.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace transnormer::ops {

// Cuts the n tokens of each row into min(segments, n) neighbouring segments as equal as possible:
// token t of n belongs to segment floor(t m / n), m = min(segments, n).
class Segments {
 public:
  // lengths: int64 [rows], 1 to `time`, or undefined where all are full, as OfRows has them.
  Segments(std::int64_t rows, std::int64_t time, std::int64_t segments, const at::Tensor& lengths,
           const at::Device& device);

  // The most that a row has: min(segments, time).
  [[nodiscard]] std::int64_t most() const { return most_; }
  // int64 [rows], how many each row has; undefined where all have most().
  [[nodiscard]] const at::Tensor& counts() const { return counts_; }

  // x: [rows, time, heads, dim] -> the means, fp32 [rows, most(), heads, dim], zero where a row has
  // no such segment. What stands behind a row's last token does not enter.
  [[nodiscard]] at::Tensor means(const at::Tensor& x) const;

 private:
  std::int64_t rows_;
  std::int64_t time_;
  std::int64_t most_;
  std::int64_t longest_;  // tokens a segment
  at::Tensor counts_;
  at::Tensor token_;        // int64 [rows * most * longest], of rows * time
  at::Tensor share_;        // fp32 [rows * most, longest, 1]: 1 / members, or 0 beside the segment
  at::Tensor segment_;      // int64 [rows * time], of rows * most
  at::Tensor token_share_;  // fp32 [rows * time, 1]: 1 / members, or 0 where no token is
};

// The approximate pseudo-inverse of matrices a [.., m, m] with no negative elements: from Z = a^T /
// (the largest sum of a column * the largest sum of a row), both of the matrix itself, six times Z
// = Z/4 (13 I - a Z (15 I - a Z (7 I - a Z))). Where a has rows and columns of zeros the result has
// them too. The backward pass keeps a and the six Z. Xiong et al. 2021, "Nystroemformer".
[[nodiscard]] at::Tensor iterated_pseudo_inverse(const at::Tensor& a);

}  // namespace transnormer::ops
