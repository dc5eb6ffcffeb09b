#include "analyze/dilution.h"

#include <ATen/ATen.h>

#include "analyze/weights.h"

namespace transnormer {

at::Tensor sums_by_distance(const at::Tensor& p) {
  const std::int64_t n = p.size(-1);
  // Rows that are n longer and are read as rows that are n - 1 longer move to the right by one
  // each: then a column holds the pairs of one i - j.
  const at::Tensor matrices = p.reshape({-1, n, n}).flip({2});
  const at::Tensor slanted = at::constant_pad_nd(matrices, {0, n})
                                 .view({-1, n * 2 * n})
                                 .narrow(1, 0, n * (2 * n - 1))
                                 .view({-1, n, 2 * n - 1});
  const at::Tensor by_lag = slanted.sum(at::IntArrayRef({0, 1}));  // i - j from -(n - 1) to n - 1
  at::Tensor by_distance = by_lag.narrow(0, n - 1, n).clone();
  by_distance.narrow(0, 1, n - 1).add_(by_lag.narrow(0, 0, n - 1).flip({0}));
  return by_distance;
}

std::vector<double> DilutionCurve::window_shares() {
  std::vector<double> shares;
  for (std::int64_t i = 0; i < kPoints; ++i) {
    shares.push_back(static_cast<double>(i) / (kPoints - 1));
  }
  return shares;
}

void DilutionCurve::add(const at::Tensor& weights) {
  const std::int64_t n = weights.size(-1);
  for (const at::Tensor& head : weights.unbind(0)) {
    const at::Tensor p = shares(head);
    rows_ += p.sum(-1).gt(0).sum().item<double>();
    const at::Tensor within = sums_by_distance(p).cumsum(0).cpu();
    for (std::int64_t i = 0; i < kPoints; ++i) {
      const std::int64_t reach = std::min(i * n / (2 * (kPoints - 1)), n - 1);
      sums_[static_cast<std::size_t>(i)] += within[reach].item<double>();
    }
  }
}

void DilutionCurve::add(const DilutionCurve& other) {
  for (std::size_t i = 0; i < sums_.size(); ++i) {
    sums_[i] += other.sums_[i];
  }
  rows_ += other.rows_;
}

std::vector<double> DilutionCurve::values() const {
  std::vector<double> values;
  for (const double sum : sums_) {
    values.push_back(sum / rows_);
  }
  return values;
}

double DilutionCurve::area() const {
  const std::vector<double> curve = values();
  double area = 0;
  for (std::size_t i = 1; i < curve.size(); ++i) {
    area += (curve[i - 1] + curve[i]) / 2 / (kPoints - 1);
  }
  return area;
}

}  // namespace transnormer
