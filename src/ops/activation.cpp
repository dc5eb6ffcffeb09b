#include "ops/activation.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>
#include <utility>

#include "ops/kernel_view.h"
#include "ops/parallel.h"

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

// The kernels leave gelu's error function to the library.
std::optional<kernels::Gate> gate_kernel(const at::Tensor& x, Activation activation) {
  if (!kernel_type(x) || activation == Activation::gelu) {
    return std::nullopt;
  }
  switch (activation) {
    case Activation::silu:
      return kernels::Gate::silu;
    case Activation::relu:
      return kernels::Gate::relu;
    default:
      return kernels::Gate::none;
  }
}

at::Tensor gated_forward(const at::Tensor& gate, const at::Tensor& up, Activation activation) {
  const auto kind = gate_kernel(gate, activation);
  if (!kind) {
    return (activate(gate.to(at::kFloat), activation) * up).to(gate.scalar_type());
  }
  const at::Tensor x = gate.contiguous();
  const at::Tensor factor = dense_like(up, gate);
  const at::Tensor y = empty_dense(gate);
  parallel_for(x.numel(), kGrain, [&](std::int64_t first, std::int64_t last) {
    kernels::kernels().gated(*kind, in(x, first), in(factor, first), out(y, first), last - first);
  });
  return y;
}

std::pair<at::Tensor, at::Tensor> gated_backward(const at::Tensor& gradient, const at::Tensor& gate,
                                                 const at::Tensor& up, Activation activation) {
  const auto kind = gate_kernel(gate, activation);
  if (!kind) {
    const at::Tensor wide = gate.to(at::kFloat);
    const at::Tensor g = gradient.to(at::kFloat);
    return {activate_backward(g * up, wide, activation).to(gate.scalar_type()),
            (g * activate(wide, activation)).to(up.scalar_type())};
  }
  const at::Tensor x = gate.contiguous();
  const at::Tensor factor = dense_like(up, gate);
  const at::Tensor g = dense_like(gradient, gate);
  const at::Tensor d_gate = empty_dense(gate);
  const at::Tensor d_up = empty_dense(gate);
  parallel_for(x.numel(), kGrain, [&](std::int64_t first, std::int64_t last) {
    kernels::kernels().gated_backward(*kind, in(x, first), in(factor, first), in(g, first),
                                      out(d_gate, first), out(d_up, first), last - first);
  });
  return {d_gate, d_up.to(up.scalar_type())};
}

struct Gated : torch::autograd::Function<Gated> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& gate, const at::Tensor& up,
                            std::int64_t activation) {
    context->save_for_backward({gate, up});
    context->saved_data["activation"] = activation;
    return gated_forward(gate, up, static_cast<Activation>(activation));
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const auto activation = static_cast<Activation>(context->saved_data["activation"].toInt());
    const auto [d_gate, d_up] = gated_backward(gradients[0], saved[0], saved[1], activation);
    return {d_gate, d_up, {}};
  }
};

at::Tensor feature_forward(const at::Tensor& x, bool plus_one) {
  if (!kernel_type(x)) {
    const at::Tensor wide = x.to(at::kFloat);
    const at::Tensor low = wide.clamp_max(0);
    return at::where(wide > 0, plus_one ? wide + 1 : wide, plus_one ? low.exp() : low.expm1())
        .to(x.scalar_type());
  }
  const at::Tensor dense = x.contiguous();
  const at::Tensor y = empty_dense(x);
  parallel_for(x.numel(), kGrain, [&](std::int64_t first, std::int64_t last) {
    kernels::kernels().elu(plus_one, in(dense, first), out(y, first), last - first);
  });
  return y;
}

at::Tensor feature_backward(const at::Tensor& gradient, const at::Tensor& x) {
  if (!kernel_type(x)) {
    const at::Tensor slope = x.to(at::kFloat).clamp_max(0).exp();
    return (gradient.to(at::kFloat) * slope).to(x.scalar_type());
  }
  const at::Tensor dense = x.contiguous();
  const at::Tensor g = dense_like(gradient, x);
  const at::Tensor d_x = empty_dense(x);
  parallel_for(x.numel(), kGrain, [&](std::int64_t first, std::int64_t last) {
    kernels::kernels().elu_backward(in(dense, first), in(g, first), out(d_x, first), last - first);
  });
  return d_x;
}

struct Feature : torch::autograd::Function<Feature> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, bool plus_one) {
    context->save_for_backward({x});
    return feature_forward(x, plus_one);
  }

  // The slope is the same with and without the one.
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    return {feature_backward(gradients[0], context->get_saved_variables()[0]), {}};
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
  return Feature::apply(x, map == FeatureMap::elu1);
}

}  // namespace transnormer::ops
