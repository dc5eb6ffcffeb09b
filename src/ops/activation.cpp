#include "ops/activation.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

namespace transnormer::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor activate_backward(const at::Tensor& gradient, const at::Tensor& x,
                             Activation activation) {
  switch (activation) {
    case Activation::silu:
      return at::silu_backward(gradient, x);
    case Activation::relu:
      return at::threshold_backward(gradient, x, 0);
    case Activation::gelu:
      return at::gelu_backward(gradient, x);
    case Activation::none:
      break;
  }
  return gradient;
}

struct Gated : torch::autograd::Function<Gated> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& gate, const at::Tensor& up,
                            std::int64_t activation) {
    context->save_for_backward({gate, up});
    context->saved_data["activation"] = activation;
    const at::Tensor opened = activate(gate.to(at::kFloat), static_cast<Activation>(activation));
    return (opened * up).to(gate.scalar_type());
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const auto activation = static_cast<Activation>(context->saved_data["activation"].toInt());
    const at::Tensor gate = saved[0].to(at::kFloat);
    const at::Tensor g = gradients[0].to(at::kFloat);
    const at::Tensor d_gate = activate_backward(g * saved[1], gate, activation);
    const at::Tensor d_up = g * activate(gate, activation);
    return {d_gate.to(saved[0].scalar_type()), d_up.to(saved[1].scalar_type()), {}};
  }
};

struct Feature : torch::autograd::Function<Feature> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, std::int64_t map) {
    context->save_for_backward({x});
    context->saved_data["map"] = map;
    const at::Tensor wide = x.to(at::kFloat);
    const bool plus_one = static_cast<FeatureMap>(map) == FeatureMap::elu1;
    const at::Tensor low = wide.clamp_max(0);
    return at::where(wide > 0, plus_one ? wide + 1 : wide, plus_one ? low.exp() : low.expm1())
        .to(x.scalar_type());
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const at::Tensor x = context->get_saved_variables()[0];
    const at::Tensor slope = x.to(at::kFloat).clamp_max(0).exp();
    return {(gradients[0].to(at::kFloat) * slope).to(x.scalar_type()), {}};
  }
};

}  // namespace

at::Tensor activate(const at::Tensor& x, Activation activation) {
  switch (activation) {
    case Activation::silu:
      return at::silu(x);
    case Activation::relu:
      return at::relu(x);
    case Activation::gelu:
      return at::gelu(x);
    case Activation::none:
      break;
  }
  return x;
}

at::Tensor gated(const at::Tensor& gate, const at::Tensor& up, Activation activation) {
  return Gated::apply(gate, up, static_cast<std::int64_t>(activation));
}

at::Tensor feature_map(const at::Tensor& x, FeatureMap map) {
  return Feature::apply(x, static_cast<std::int64_t>(map));
}

}  // namespace transnormer::ops
