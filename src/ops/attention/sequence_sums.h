// Linear attention over a sequence whose neighbouring parts lie on the ranks of a group, all of one
// length. Its output is linear in the sum of k v^T, so that a rank needs of the others only sums:
// with U_r those of rank r's tokens, it starts from S = sum of U_r over the ranks r before it; its
// dS = sum of q do^T over its tokens is what its output asks of each U_r in S, so that the sums
// behind its own tokens start from the sum of dS over the ranks behind it. One exchange a pass.
#pragma once

#include <ATen/core/Tensor.h>

#include "dist/group.h"

namespace transnormer::ops {

// Sums over the ranks before this one, and over those behind it, in a fixed order. `own`: of this
// rank's tokens, fp32, of the same sizes on all. fading: what a sum is multiplied with on its way
// past one rank's tokens, [heads, 1, 1]; undefined: 1.
[[nodiscard]] at::Tensor sums_of_ranks_before(const dist::Group& group, const at::Tensor& own,
                                              const at::Tensor& fading = {});
[[nodiscard]] at::Tensor sums_of_ranks_behind(const dist::Group& group, const at::Tensor& own,
                                              const at::Tensor& fading = {});

}  // namespace transnormer::ops
