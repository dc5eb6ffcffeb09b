#include "ops/linear.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>

#include "ops/compute_type.h"

namespace transnormer::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The weight's shadow in the compute type is kept from forward to backward, so that it is cast
// once.
struct Linear : torch::autograd::Function<Linear> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias, at::ScalarType compute) {
    const at::Tensor input = product_operand(x, compute);
    const at::Tensor shadow = product_operand(weight, compute);
    context->save_for_backward({input, shadow});
    context->saved_data["compute"] = static_cast<std::int64_t>(compute);
    context->saved_data["x_type"] = static_cast<std::int64_t>(x.scalar_type());
    context->saved_data["weight_type"] = static_cast<std::int64_t>(weight.scalar_type());
    context->saved_data["has_bias"] = bias.has_value();
    return at::linear(input, shadow, bias ? product_operand(*bias, compute) : at::Tensor())
        .to(compute);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& input = saved[0];
    const at::Tensor& shadow = saved[1];
    const auto type = [context](const char* name) {
      return static_cast<at::ScalarType>(context->saved_data[name].toInt());
    };
    const at::Tensor gradient = product_operand(gradients[0], type("compute"));
    const at::Tensor rows = gradient.reshape({-1, gradient.size(-1)});
    at::Tensor d_x;
    at::Tensor d_weight;
    at::Tensor d_bias;
    if (context->needs_input_grad(0)) {
      d_x = at::mm(rows, shadow).view(input.sizes()).to(type("x_type"));
    }
    if (context->needs_input_grad(1)) {
      d_weight = at::mm(rows.t(), input.reshape({-1, input.size(-1)})).to(type("weight_type"));
    }
    if (context->saved_data["has_bias"].toBool() && context->needs_input_grad(2)) {
      d_bias = at::sum(rows, {0}, false, type("weight_type"));
    }
    return {d_x, d_weight, d_bias, {}};
  }
};

}  // namespace

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                  at::ScalarType compute) {
  // An undefined tensor cannot be an input of a function.
  return Linear::apply(x, weight, bias.defined() ? std::optional(bias) : std::nullopt, compute);
}

}  // namespace transnormer::ops
