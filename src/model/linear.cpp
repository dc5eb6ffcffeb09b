#include "model/linear.h"

#include <cmath>

#include "ops/linear.h"

namespace transnormer {

Linear::Linear(std::int64_t in, std::int64_t out, LinearStart start, at::Device device)
    : start_(start),
      weight_(register_parameter("weight", at::empty({out, in}, at::device(device)))),
      bias_(register_parameter("bias", at::empty({out}, at::device(device)))) {}

at::Tensor Linear::forward(const at::Tensor& x, at::ScalarType compute) const {
  return ops::linear(x, weight_, bias_, compute);
}

void Linear::initialize(const Initializer& initializer, const std::string& prefix) {
  const auto in = static_cast<double>(weight_.size(1));
  const auto out = static_cast<double>(weight_.size(0));
  const double framework = 1 / std::sqrt(in);
  initializer.uniform(
      weight_, prefix + "weight",
      start_.xavier_gain ? *start_.xavier_gain * std::sqrt(6 / (in + out)) : framework);
  initializer.uniform(bias_, prefix + "bias", start_.zero_bias ? 0 : framework);
}

Table::Table(std::int64_t rows, std::int64_t dim, at::Device device)
    : weight_(register_parameter("weight", at::empty({rows, dim}, at::device(device)))) {}

void Table::initialize(const Initializer& initializer, const std::string& prefix) {
  initializer.normal(weight_, prefix + "weight",
                     1 / std::sqrt(static_cast<double>(weight_.size(1))));
}

}  // namespace transnormer
