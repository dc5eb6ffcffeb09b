// Parameters with made-up gradients, the same for an optimizer and for a plain loop beside it.
#pragma once

#include <ATen/ATen.h>

#include <cmath>
#include <string>
#include <vector>

#include "model/weights.h"

namespace transnormer::test {

inline NamedTensor parameter(const std::string& name, const at::Tensor& value) {
  return {name, value.detach().clone().set_requires_grad(true), true};
}

// Elements of a matrix by rows: of full rank, and never the same twice.
inline double chirp(int update, int element) {
  return std::sin(1.7 * update + 0.37 * (element + 1) * (element + 1));
}

inline at::Tensor start_of(at::IntArrayRef sizes) {
  at::Tensor start = at::empty(sizes);
  for (int i = 0; i < start.numel(); ++i) {
    start.view({-1})[i] = std::cos(0.9 * i);
  }
  return start;
}

inline void set_gradient(const NamedTensor& parameter, int update) {
  const at::Tensor gradient = parameter.tensor.grad().view({-1});
  for (int i = 0; i < gradient.numel(); ++i) {
    gradient[i] = chirp(update, i);
  }
}

inline double rate(int update) {
  return 1e-2 / (1 + update);
}

inline std::vector<double> numbers_of(const at::Tensor& tensor) {
  const at::Tensor values = tensor.detach().to(at::kDouble).contiguous();
  return {values.const_data_ptr<double>(), values.const_data_ptr<double>() + values.numel()};
}

}  // namespace transnormer::test
