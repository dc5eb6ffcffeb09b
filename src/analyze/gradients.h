// Gradients of the attention weights beside the bounds of the theory. Qin et al. 2022, section 3.1:
// softmax has |dp_ij/ds_ik| <= 1/4; linear attention with a denominator 1 / (4 |s_ik|), which has
// no limit; NormAttention |dL/ds_ij| <= 3 c1 c2 d / (2 sqrt(eps)), c1 = max_i ||dL/dO_i||, c2 =
// max_i ||V_i||, d the width of the normalised output O.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "analyze/recorder.h"
#include "analyze/subject.h"
#include "analyze/weights.h"

namespace transnormer {

// The largest p (1 - p) = |dp_ij/ds_ij| of softmax weights p [.., n, n].
[[nodiscard]] double largest_softmax_gradient(const at::Tensor& p);

// Of linear attention with a denominator: p [.., n, n], and the scores s of the same sizes. Pairs
// whose score is 0, seen or not, are left out.
struct LinearGradients {
  double bound = 0;             // the largest 1 / (4 |s|)
  double largest = 0;           // the largest p (1 - p) / |s| = |dp_ij/ds_ij|
  std::vector<float> bounds{};  // 1 / (4 |s|) of up to 65,536 pairs, evenly taken
};
[[nodiscard]] LinearGradients linear_gradients(const at::Tensor& p, const at::Tensor& scores);

// dL/ds_ij = (dL/do_i) . v_j where o = S V: gradient, values [n, width] -> [n, n].
[[nodiscard]] at::Tensor score_gradients(const at::Tensor& gradient, const at::Tensor& values);

// 3 c1 c2 d / (2 sqrt(eps)).
[[nodiscard]] double norm_bound(double c1, double c2, double width, double eps);

struct LayerGradients {
  std::int64_t layer = 0;
  Weighting weighting = Weighting::other;
  // "dp/ds", or "dL/ds" of the mean loss of the next token; "dL/dw" where the scores behind the
  // weights w are not known.
  std::string quantity;
  double largest = std::numeric_limits<double>::quiet_NaN();  // that occurs; not a number: unknown
  double bound = std::numeric_limits<double>::quiet_NaN();    // not a number: none
  double median_bound = std::numeric_limits<double>::quiet_NaN();  // where each pair has its own
  double c1 = std::numeric_limits<double>::quiet_NaN();
  double c2 = std::numeric_limits<double>::quiet_NaN();
};

// By selected layer, over all windows.
[[nodiscard]] std::vector<LayerGradients> measure_gradients(const Subject& subject,
                                                            const Selection& selection);

}  // namespace transnormer
