// Plain double-precision arithmetic that the operators are compared with.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <vector>

namespace transnormer::ops {

// The values of a tensor in double, row-major.
inline std::vector<double> values(const at::Tensor& x) {
  const at::Tensor wide = x.detach().to(at::kCPU, at::kDouble).contiguous();
  const auto* data = wide.const_data_ptr<double>();
  return {data, data + wide.numel()};
}

// Normal values as a function of a seed, in fp32.
inline at::Tensor normal(at::IntArrayRef shape, std::uint64_t seed) {
  return at::randn(shape, at::detail::createCPUGenerator(seed), at::kFloat);
}

// Largest difference, relative to the largest reference value (or 1e-30).
inline double distance(const at::Tensor& x, const std::vector<double>& reference) {
  const std::vector<double> found = values(x);
  EXPECT_EQ(found.size(), reference.size());
  double difference = 0;
  double largest = 1e-30;
  for (std::size_t i = 0; i < reference.size(); ++i) {
    if (!std::isfinite(found[i])) {
      return INFINITY;
    }
    difference = std::max(difference, std::abs(found[i] - reference[i]));
    largest = std::max(largest, std::abs(reference[i]));
  }
  return difference / largest;
}

inline double distance(const at::Tensor& x, const at::Tensor& reference) {
  return distance(x, values(reference));
}

// d(sum(weights * f(x))) / dx by central differences.
inline std::vector<double> gradient_of(
    const std::function<std::vector<double>(const std::vector<double>&)>& f,
    const std::vector<double>& weights, std::vector<double> x) {
  constexpr double kStep = 1e-5;
  const auto weighted = [&] {
    const std::vector<double> y = f(x);
    double sum = 0;
    for (std::size_t i = 0; i < y.size(); ++i) {
      sum += weights[i] * y[i];
    }
    return sum;
  };
  std::vector<double> gradient;
  for (double& place : x) {
    const double middle = place;
    place = middle + kStep;
    const double above = weighted();
    place = middle - kStep;
    const double below = weighted();
    place = middle;
    gradient.push_back((above - below) / (2 * kStep));
  }
  return gradient;
}

// A leaf copy that gathers a gradient.
inline at::Tensor leaf(const at::Tensor& x) {
  return x.detach().clone().requires_grad_();
}

// The same values behind strides that are not dense.
inline at::Tensor strided(const at::Tensor& x) {
  return at::stack({x, x + 1}, -1).select(-1, 0);
}

}  // namespace transnormer::ops
