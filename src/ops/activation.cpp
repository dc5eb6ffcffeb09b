#include "ops/activation.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>
#include <vector>

#include "ops/kernels/feature.h"
#include "ops/runtime/carry.h"
#include "ops/runtime/launch.h"
#include "ops/runtime/row_pitch.h"

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
template <typename Kernel>
std::optional<kernels::Gate> gate_of(const at::Tensor& x, Activation activation, Kernel kernel) {
  if (!kernel_serves(x, kernel) || activation == Activation::gelu) {
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

// Some rows of a GLU, and the elements before them.
struct GatedPart {
  kernels::GatedRows rows;
  std::int64_t gate_up;
  std::int64_t out;
};

// Calls body(kernels, part) for all rows; both tensors have even rows.
template <typename Body>
void launch_gated(const at::Tensor& gate_up, const at::Tensor& out, const Body& body) {
  const std::int64_t width = out.size(-1);
  const std::int64_t gate_up_stride = row_stride_of(gate_up);
  const std::int64_t out_stride = row_stride_of(out);
  launch(gate_up, row_count(gate_up), row_grain(width),
         [&](const kernels::Kernels& k, std::int64_t first, std::int64_t last) {
           body(k, GatedPart{{last - first, width, gate_up_stride, out_stride},
                             first * gate_up_stride,
                             first * out_stride});
         });
}

at::Tensor gated_forward(const at::Tensor& gate_up, Activation activation) {
  const std::int64_t width = gate_up.size(-1) / 2;
  const auto kind = gate_of(gate_up, activation, &kernels::Kernels::gated);
  if (!kind) {
    const std::vector<at::Tensor> halves = gate_up.to(at::kFloat).chunk(2, -1);
    return (activate(halves[0], activation) * halves[1]).to(gate_up.scalar_type());
  }
  const at::Tensor x = even_rows(gate_up);
  const at::Tensor y = empty_rows(x.narrow(-1, 0, width).sizes(), x.options());
  launch_gated(x, y, [&](const kernels::Kernels& k, const GatedPart& part) {
    k.gated(*kind, in(x, part.gate_up), out(y, part.out), part.rows);
  });
  return y;
}

struct Gated : torch::autograd::Function<Gated> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& gate_up,
                            Activation activation) {
    context->save_for_backward({gate_up});
    carry(context, activation);
    return gated_forward(gate_up, activation);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    return {gated_backward(gradients[0], context->get_saved_variables()[0],
                           carried<Activation>(context)),
            {}};
  }
};

// The arithmetic of ops/kernels/feature.h.
struct Tensors {
  static at::Tensor select(const at::Tensor& condition, const at::Tensor& a, const at::Tensor& b) {
    return at::where(condition, a, b);
  }
  static at::Tensor exp(const at::Tensor& x) { return x.exp(); }
  static at::Tensor expm1(const at::Tensor& x) { return x.expm1(); }
  static at::Tensor reciprocal(const at::Tensor& x) { return x.reciprocal(); }
  static at::Tensor number(const at::Tensor& x, float c) { return at::full_like(x, c); }
};

at::Tensor feature_forward(const at::Tensor& x, kernels::Feature feature) {
  if (!kernel_serves(x, &kernels::Kernels::feature)) {
    const at::Tensor wide = x.to(at::kFloat);
    return kernels::by_feature(feature,
                               [&]<typename Phi>() { return Phi::template value<Tensors>(wide); })
        .to(x.scalar_type());
  }
  const at::Tensor dense = x.contiguous();
  const at::Tensor y = empty_dense(x);
  launch(x, x.numel(), kGrain,
         [&](const kernels::Kernels& k, std::int64_t first, std::int64_t last) {
           k.feature(feature, in(dense, first), out(y, first), last - first);
         });
  return y;
}

at::Tensor feature_backward(const at::Tensor& gradient, const at::Tensor& x,
                            kernels::Feature feature) {
  if (!kernel_serves(x, &kernels::Kernels::feature_backward)) {
    const at::Tensor wide = x.to(at::kFloat);
    const at::Tensor slope = kernels::by_feature(feature, [&]<typename Phi>() {
      return Phi::template slope<Tensors>(wide, Phi::template value<Tensors>(wide));
    });
    return (gradient.to(at::kFloat) * slope).to(x.scalar_type());
  }
  const at::Tensor dense = x.contiguous();
  const at::Tensor g = dense_like(gradient, x);
  const at::Tensor d_x = empty_dense(x);
  launch(
      x, x.numel(), kGrain, [&](const kernels::Kernels& k, std::int64_t first, std::int64_t last) {
        k.feature_backward(feature, in(dense, first), in(g, first), out(d_x, first), last - first);
      });
  return d_x;
}

struct Feature : torch::autograd::Function<Feature> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x,
                            kernels::Feature feature) {
    context->save_for_backward({x});
    carry(context, feature);
    return feature_forward(x, feature);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    return {feature_backward(gradients[0], context->get_saved_variables()[0],
                             carried<kernels::Feature>(context)),
            {}};
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

at::Tensor gated(const at::Tensor& gate_up, Activation activation) {
  TORCH_CHECK(gate_up.size(-1) % 2 == 0,
              "gated: expected gate and up side by side, got a width of ", gate_up.size(-1));
  return at::GradMode::is_enabled() ? Gated::apply(gate_up, activation)
                                    : gated_forward(gate_up, activation);
}

at::Tensor feature_map(const at::Tensor& x, FeatureMap map) {
  const kernels::Feature feature = feature_of(map);
  return at::GradMode::is_enabled() ? Feature::apply(x, feature) : feature_forward(x, feature);
}

kernels::Feature feature_of(FeatureMap map) {
  switch (map) {
    case FeatureMap::elu1:
      return kernels::Feature::elu1;
    case FeatureMap::elu:
      return kernels::Feature::elu;
    case FeatureMap::relu:
      return kernels::Feature::relu;
    case FeatureMap::silu:
      return kernels::Feature::silu;
    case FeatureMap::exp:
      return kernels::Feature::exp;
  }
  return kernels::Feature::none;
}

at::Tensor gated_backward(const at::Tensor& gradient, const at::Tensor& gate_up,
                          Activation activation) {
  const auto kind = gate_of(gate_up, activation, &kernels::Kernels::gated_backward);
  if (!kind) {
    const std::vector<at::Tensor> halves = gate_up.to(at::kFloat).chunk(2, -1);
    const at::Tensor g = gradient.to(at::kFloat);
    return at::cat({activate_backward(g * halves[1], halves[0], activation),
                    g * activate(halves[0], activation)},
                   -1)
        .to(gate_up.scalar_type());
  }
  const at::Tensor d_x = empty_rows(gate_up.sizes(), gate_up.options());
  // The kernel takes one stride for both.
  at::Tensor x = even_rows(gate_up);
  if (row_stride_of(x) != row_stride_of(d_x)) {
    x = empty_rows(x.sizes(), x.options()).copy_(x);
  }
  const at::Tensor g = even_rows(gradient.to(x.scalar_type()));
  launch_gated(x, g, [&](const kernels::Kernels& k, const GatedPart& part) {
    k.gated_backward(*kind, in(x, part.gate_up), in(g, part.out), out(d_x, part.gate_up),
                     part.rows);
  });
  return d_x;
}

}  // namespace transnormer::ops
