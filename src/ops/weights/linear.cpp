#include "ops/weights/linear.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>
#include <vector>

#include "ops/activation.h"
#include "ops/runtime/carry.h"
#include "ops/runtime/row_pitch.h"
#include "ops/weights/compute_type.h"
#include "ops/weights/few_rows.h"
#include "ops/weights/weight_gradient.h"

namespace transnormer::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Affine {
  // What is multiplied, of what is kept.
  [[nodiscard]] at::Tensor input(const at::Tensor& kept) const {
    return gate ? product_operand(gated(kept, *gate), compute) : kept;
  }
  [[nodiscard]] at::Tensor bias_operand() const {
    return bias.defined() ? bias.operand(compute) : at::Tensor();
  }

  Weight weight;
  Weight bias;
  at::ScalarType compute;
  std::optional<Activation> gate;  // where what comes in is gate and up
  at::ScalarType x_type;           // of what comes in
};

// The sizes of a tensor with another last dimension.
std::vector<std::int64_t> sizes_with(at::IntArrayRef sizes, std::int64_t last) {
  std::vector<std::int64_t> changed = sizes.vec();
  changed.back() = last;
  return changed;
}

// x W^T + b. By the library's own where rows need no pitch.
at::Tensor affine_product(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  const std::int64_t out = weight.size(0);
  if (row_pitch(out, x.options()) == out) {
    return at::linear(x, weight, bias);
  }
  at::Tensor y = empty_rows(sizes_with(x.sizes(), out), x.options());
  at::Tensor to = y.view({-1, out});
  const at::Tensor rows = x.reshape({-1, x.size(-1)});
  if (bias.defined()) {
    at::addmm_out(to, bias, rows, weight.t());
  } else {
    at::mm_out(to, rows, weight.t());
  }
  return y;
}

// rows W, of the sizes given but for the last.
at::Tensor product(const at::Tensor& rows, const at::Tensor& weight, at::IntArrayRef sizes) {
  at::Tensor y = empty_rows(sizes_with(sizes, weight.size(1)), rows.options());
  at::Tensor to = y.view({-1, weight.size(1)});
  at::mm_out(to, rows, weight);
  return y;
}

struct Linear : torch::autograd::Function<Linear> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor&,
                            const std::optional<at::Tensor>&, const Affine& affine) {
    const at::Tensor kept = affine.gate ? x : product_operand(x, affine.compute);
    const at::Tensor weight = affine.weight.operand(affine.compute);
    context->save_for_backward({kept, weight});
    carry(context, affine);
    return affine_product(affine.input(kept), weight, affine.bias_operand()).to(affine.compute);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& kept = saved[0];
    const auto& affine = carried<Affine>(context);
    const at::Tensor gradient = product_operand(gradients[0], affine.compute);
    const at::Tensor rows = gradient.reshape({-1, gradient.size(-1)});
    at::Tensor d_x;
    at::Tensor d_weight;
    at::Tensor d_bias;
    if (context->needs_input_grad(0)) {
      d_x = product(rows, saved[1], kept.sizes()).to(affine.x_type);
      if (affine.gate) {
        d_x = gated_backward(d_x, kept, *affine.gate);
      }
    }
    if (context->needs_input_grad(1)) {
      const at::Tensor sum = gradient_sum(affine.weight);
      add_weight_gradient(sum, rows, affine.input(kept).reshape({-1, saved[1].size(1)}));
      d_weight = affine.weight.gathers_gradient() ? at::Tensor() : sum;
    }
    if (affine.bias.defined() && context->needs_input_grad(2)) {
      const at::Tensor sum = gradient_sum(affine.bias);
      add_bias_gradient(sum, rows);
      d_bias = affine.bias.gathers_gradient() ? at::Tensor() : sum;
    }
    return {d_x, d_weight, d_bias, {}};
  }
};

at::Tensor without_gradients(const at::Tensor& x, const Affine& affine) {
  const at::Tensor operand = affine.input(affine.gate ? x : product_operand(x, affine.compute));
  const at::Tensor weight = affine.weight.operand(affine.compute);
  const at::Tensor bias = affine.bias_operand();
  return (few_rows_fit(operand, weight) ? few_rows_product(operand, weight, bias)
                                        : affine_product(operand, weight, bias))
      .to(affine.compute);
}

at::Tensor apply(const at::Tensor& x, const Weight& weight, const Weight& bias,
                 at::ScalarType compute, std::optional<Activation> gate) {
  const Affine affine{weight, bias, compute, gate, x.scalar_type()};
  if (!at::GradMode::is_enabled()) {
    return without_gradients(x, affine);
  }
  // An undefined tensor cannot be an input of a function.
  return Linear::apply(x, weight.anchor(),
                       bias.defined() ? std::optional(bias.anchor()) : std::nullopt, affine);
}

}  // namespace

at::Tensor linear(const at::Tensor& x, const Weight& weight, const Weight& bias,
                  at::ScalarType compute) {
  return apply(x, weight, bias, compute, std::nullopt);
}

at::Tensor gated_linear(const at::Tensor& gate_up, Activation activation, const Weight& weight,
                        const Weight& bias, at::ScalarType compute) {
  return apply(gate_up, weight, bias, compute, activation);
}

}  // namespace transnormer::ops
