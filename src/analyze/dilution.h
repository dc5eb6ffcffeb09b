// Attention dilution: how much of the attention falls into a neighbourhood of each token. Qin et
// al. 2022, section 3.2 and figure 1.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace transnormer {

// The sums of p_ij over all tokens i, by distance d = |i - j|, for one matrix or several: p fp64
// [.., n, n] -> [n].
[[nodiscard]] at::Tensor sums_by_distance(const at::Tensor& p);

// Locally accumulated attention score: l(i, r) is the sum of p_ij over the tokens j with |i - j| <=
// r n / 2 (a window of r n tokens centred on i, clipped at the sequence's ends); the curve is its
// mean over all tokens that attend to any. What is added may have windows of several lengths.
class DilutionCurve {
 public:
  // r = 0, 0.05, .. 1; the first is what a token takes from itself.
  static constexpr std::int64_t kPoints = 21;
  [[nodiscard]] static std::vector<double> window_shares();

  // weights: fp32 [heads, n, n], signed or of any sum; each row counts as |s| / sum |s|.
  void add(const at::Tensor& weights);
  void add(const DilutionCurve& other);

  // l(r) at window_shares(); not a number where no token attends to any.
  [[nodiscard]] std::vector<double> values() const;
  // The area under values() over r from 0 to 1, by trapezoids.
  [[nodiscard]] double area() const;

 private:
  std::vector<double> sums_ = std::vector<double>(kPoints);
  double rows_ = 0;
};

}  // namespace transnormer
