#include "ops/weights/linear.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>
#include <vector>

#include "ops/activation.h"
#include "ops/runtime/row_pitch.h"
#include "ops/weights/compute_type.h"
#include "ops/weights/weight_gradient.h"

namespace transnormer::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Carried from forward to backward.
struct Map : torch::CustomClassHolder {
  Map(const Weight& w, const Weight& b, at::ScalarType c, std::optional<Activation> g)
      : weight(w), bias(b), compute(c), gate(g) {}

  // What is multiplied, of what is kept.
  [[nodiscard]] at::Tensor input(const at::Tensor& kept) const {
    return gate ? product_operand(gated(kept, *gate), compute) : kept;
  }

  Weight weight;
  Weight bias;
  at::ScalarType compute;
  std::optional<Activation> gate;  // where what comes in is gate and up
};

// The sizes of a tensor with another last dimension.
std::vector<std::int64_t> sizes_with(at::IntArrayRef sizes, std::int64_t last) {
  std::vector<std::int64_t> changed = sizes.vec();
  changed.back() = last;
  return changed;
}

// x W^T + b. By the library's own where rows need no pitch.
at::Tensor affine(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
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
                            const std::optional<at::Tensor>&, const c10::intrusive_ptr<Map>& map) {
    const at::Tensor kept = map->gate ? x : product_operand(x, map->compute);
    const at::Tensor weight = map->weight.operand(map->compute);
    context->save_for_backward({kept, weight});
    context->saved_data["map"] = c10::IValue::make_capsule(map);
    context->saved_data["x_type"] = static_cast<std::int64_t>(x.scalar_type());
    const at::Tensor bias = map->bias.defined() ? map->bias.operand(map->compute) : at::Tensor();
    return affine(map->input(kept), weight, bias).to(map->compute);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& kept = saved[0];
    const auto map =
        c10::static_intrusive_pointer_cast<Map>(context->saved_data["map"].toCapsule());
    const at::Tensor gradient = product_operand(gradients[0], map->compute);
    const at::Tensor rows = gradient.reshape({-1, gradient.size(-1)});
    at::Tensor d_x;
    at::Tensor d_weight;
    at::Tensor d_bias;
    if (context->needs_input_grad(0)) {
      d_x = product(rows, saved[1], kept.sizes())
                .to(static_cast<at::ScalarType>(context->saved_data["x_type"].toInt()));
      if (map->gate) {
        d_x = gated_backward(d_x, kept, *map->gate);
      }
    }
    if (context->needs_input_grad(1)) {
      const at::Tensor sum = gradient_sum(map->weight);
      add_weight_gradient(sum, rows, map->input(kept).reshape({-1, saved[1].size(1)}));
      d_weight = map->weight.gathers_gradient() ? at::Tensor() : sum;
    }
    if (map->bias.defined() && context->needs_input_grad(2)) {
      const at::Tensor sum = gradient_sum(map->bias);
      add_bias_gradient(sum, rows);
      d_bias = map->bias.gathers_gradient() ? at::Tensor() : sum;
    }
    return {d_x, d_weight, d_bias, {}};
  }
};

at::Tensor apply_map(const at::Tensor& x, const c10::intrusive_ptr<Map>& map) {
  // An undefined tensor cannot be an input of a function.
  return Linear::apply(x, map->weight.anchor(),
                       map->bias.defined() ? std::optional(map->bias.anchor()) : std::nullopt, map);
}

}  // namespace

at::Tensor linear(const at::Tensor& x, const Weight& weight, const Weight& bias,
                  at::ScalarType compute) {
  return apply_map(x, c10::make_intrusive<Map>(weight, bias, compute, std::nullopt));
}

at::Tensor gated_linear(const at::Tensor& gate_up, Activation activation, const Weight& weight,
                        const Weight& bias, at::ScalarType compute) {
  return apply_map(gate_up, c10::make_intrusive<Map>(weight, bias, compute, activation));
}

}  // namespace transnormer::ops
