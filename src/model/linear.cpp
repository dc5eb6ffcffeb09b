#include "model/linear.h"

#include <cmath>
#include <memory>
#include <utility>

#include "ops/weights/linear.h"

namespace transnormer {
namespace {

at::Tensor empty(at::IntArrayRef sizes, at::Device device) {
  return at::empty(sizes, at::device(device));
}

}  // namespace

Linear::Linear(std::int64_t in, std::int64_t out, LinearStart start, at::Device device)
    : Linear(empty({out, in}, device), empty({out}, device), start) {}

Linear::Linear(const at::Tensor& weight, const at::Tensor& bias, LinearStart start)
    : start_(start),
      weight_(register_parameter("weight", weight)),
      bias_(register_parameter("bias", bias)),
      weight_operand_(weight_),
      bias_operand_(bias_) {}

at::Tensor Linear::forward(const at::Tensor& x, at::ScalarType compute) const {
  return ops::linear(x, weight_operand_, bias_operand_, compute);
}

at::Tensor Linear::forward_gated(const at::Tensor& gate_up, Activation activation,
                                 at::ScalarType compute) const {
  return ops::gated_linear(gate_up, activation, weight_operand_, bias_operand_, compute);
}

LinearGroup::LinearGroup(torch::nn::Module& owner, std::int64_t in, const std::vector<Part>& parts,
                         at::Device device) {
  std::int64_t out = 0;
  for (const Part& part : parts) {
    out += part.out;
  }
  const at::Tensor weight = empty({out, in}, device);
  const at::Tensor bias = empty({out}, device);
  std::vector<at::Tensor> weights;
  std::vector<at::Tensor> biases;
  std::int64_t first = 0;
  for (const Part& part : parts) {
    const auto linear = owner.register_module(
        part.name, std::make_shared<Linear>(weight.narrow(0, first, part.out).detach(),
                                            bias.narrow(0, first, part.out).detach(), part.start));
    weights.push_back(linear->weight());
    biases.push_back(linear->bias());
    first += part.out;
  }
  weight_ = ops::Weight(weight, std::move(weights));
  bias_ = ops::Weight(bias, std::move(biases));
}

at::Tensor LinearGroup::forward(const at::Tensor& x, at::ScalarType compute) const {
  return ops::linear(x, weight_, bias_, compute);
}

void Linear::initialize(const Initializer& initializer, const std::string& prefix) {
  const auto in = static_cast<double>(weight_.size(1));
  const auto out = static_cast<double>(weight_.size(0));
  const double framework = 1 / std::sqrt(in);
  if (start_.normal_std) {
    initializer.normal(weight_, prefix + "weight", *start_.normal_std);
  } else {
    initializer.uniform(
        weight_, prefix + "weight",
        start_.xavier_gain ? *start_.xavier_gain * std::sqrt(6 / (in + out)) : framework);
  }
  initializer.uniform(bias_, prefix + "bias", start_.zero_bias ? 0 : framework);
}

Table::Table(std::int64_t rows, std::int64_t dim, at::Device device)
    : weight_(register_parameter("weight", empty({rows, dim}, device))), operand_(weight_) {}

void Table::initialize(const Initializer& initializer, const std::string& prefix) {
  initializer.normal(weight_, prefix + "weight",
                     1 / std::sqrt(static_cast<double>(weight_.size(1))));
}

OutputTable::OutputTable(std::int64_t words, std::int64_t dim, const Has& has, at::Device device) {
  if (has.weight) {
    weight_ = register_parameter("weight", empty({words, dim}, device));
    weight_operand_ = weight_;
  }
  if (has.bias) {
    bias_ = register_parameter("bias", empty({words}, device));
    bias_operand_ = bias_;
  }
}

void OutputTable::initialize(const Initializer& initializer, const std::string& prefix) {
  const at::NoGradGuard no_grad;
  if (weight_.defined()) {
    initializer.normal(weight_, prefix + "weight",
                       1 / std::sqrt(static_cast<double>(weight_.size(1))));
  }
  if (bias_.defined()) {
    bias_.zero_();
  }
}

}  // namespace transnormer
