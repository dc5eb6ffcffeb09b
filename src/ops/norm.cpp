#include "ops/norm.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <tuple>

#include "ops/runtime/carry.h"
#include "ops/runtime/launch.h"

namespace transnormer::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor inverse_rms(const at::Tensor& x, double eps) {
  return x.square().mean(-1, true).add_(eps).rsqrt_();
}

template <typename Kernel>
bool kernel_fits(const at::Tensor& x, at::ScalarType other, Kernel kernel) {
  return kernel_serves(x, kernel) && kernel_serves(x.device(), other, kernel);
}

at::Tensor srms_forward(const at::Tensor& x, double eps, at::ScalarType result) {
  if (!kernel_fits(x, result, &kernels::Kernels::srms_norm)) {
    const at::Tensor wide = x.to(at::kFloat);
    return (wide * inverse_rms(wide, eps)).to(result);
  }
  const at::Tensor dense = x.contiguous();
  const at::Tensor y = at::empty(x.sizes(), x.options().dtype(result));
  const std::int64_t dim = x.size(-1);
  launch(x, row_count(x), row_grain(dim),
         [&](const kernels::Kernels& k, std::int64_t first, std::int64_t last) {
           k.srms_norm(in(dense, first * dim), out(y, first * dim), last - first, dim,
                       static_cast<float>(eps));
         });
  return y;
}

at::Tensor sum_of_rows(const at::Tensor& x) {
  return x.reshape({-1, x.size(-1)}).sum(0);
}

at::Tensor rms_forward(const at::Tensor& x, const at::Tensor& gain, double eps,
                       at::ScalarType result) {
  return (srms_forward(x, eps, at::kFloat) * gain).to(result);
}

at::Tensor layer_norm_forward(const at::Tensor& x, const at::Tensor& gain, const at::Tensor& bias,
                              double eps, at::ScalarType result) {
  return std::get<0>(at::native_layer_norm(x.to(at::kFloat), gain.sizes(), gain, bias, eps))
      .to(result);
}

at::Tensor gated_srms_forward(const at::Tensor& x, const at::Tensor& gain, const at::Tensor& gate,
                              double eps, at::ScalarType result) {
  return srms_forward(x, eps, at::kFloat).mul_(gain).mul_((x * gate).sigmoid_()).to(result);
}

struct SrmsNorm : torch::autograd::Function<SrmsNorm> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, double eps,
                            at::ScalarType result) {
    context->save_for_backward({x});
    carry(context, eps);
    return srms_forward(x, eps, result);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const at::Tensor x = context->get_saved_variables()[0];
    return {srms_norm_backward(gradients[0], x, carried<double>(context)), {}, {}};
  }
};

struct RmsNorm : torch::autograd::Function<RmsNorm> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& gain,
                            double eps, at::ScalarType result) {
    context->save_for_backward({x, gain});
    carry(context, eps);
    return rms_forward(x, gain, eps, result);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const double eps = carried<double>(context);
    const at::Tensor g = gradients[0].to(at::kFloat);
    const at::Tensor d_gain = sum_of_rows(g * srms_forward(saved[0], eps, at::kFloat));
    return {srms_norm_backward(g * saved[1], saved[0], eps), d_gain, {}, {}};
  }
};

struct GatedSrmsNorm : torch::autograd::Function<GatedSrmsNorm> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& gain,
                            const at::Tensor& gate, double eps, at::ScalarType result) {
    context->save_for_backward({x, gain, gate});
    carry(context, eps);
    return gated_srms_forward(x, gain, gate, eps, result);
  }

  // Of y = gain n(x) s(gate x): with respect to n, and to s = sigmoid(z), whose own is s (1 - s).
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const double eps = carried<double>(context);
    const at::Tensor x = saved[0].to(at::kFloat);
    const at::Tensor& gain = saved[1];
    const at::Tensor& gate = saved[2];
    const at::Tensor g = gradients[0].to(at::kFloat);
    const at::Tensor open = (x * gate).sigmoid_();
    const at::Tensor g_open = g * open;
    const at::Tensor along = g_open * srms_forward(x, eps, at::kFloat);
    const at::Tensor d_gain = sum_of_rows(along);
    const at::Tensor d_z = (1 - open).mul_(along).mul_(gain);
    const at::Tensor d_gate = sum_of_rows(d_z * x);
    const at::Tensor d_x = srms_norm_backward(g_open * gain, x, eps) + d_z * gate;
    return {d_x.to(saved[0].scalar_type()), d_gain, d_gate, {}, {}};
  }
};

struct LayerNorm : torch::autograd::Function<LayerNorm> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& gain,
                            const at::Tensor& bias, double eps, at::ScalarType result) {
    context->save_for_backward({x, gain, bias});
    carry(context, eps);
    return layer_norm_forward(x, gain, bias, eps, result);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor wide = saved[0].to(at::kFloat);
    const at::Tensor& gain = saved[1];
    const at::Tensor& bias = saved[2];
    const auto [y, mean, rstd] =
        at::native_layer_norm(wide, gain.sizes(), gain, bias, carried<double>(context));
    auto [d_x, d_gain, d_bias] =
        at::native_layer_norm_backward(gradients[0].to(at::kFloat).contiguous(), wide.contiguous(),
                                       gain.sizes(), mean, rstd, gain, bias, {true, true, true});
    return {d_x.to(saved[0].scalar_type()), d_gain, d_bias, {}, {}};
  }
};

}  // namespace

at::Tensor srms_norm(const at::Tensor& x, double eps, at::ScalarType result) {
  return at::GradMode::is_enabled() ? SrmsNorm::apply(x, eps, result)
                                    : srms_forward(x, eps, result);
}

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& gain, double eps,
                    at::ScalarType result) {
  return at::GradMode::is_enabled() ? RmsNorm::apply(x, gain, eps, result)
                                    : rms_forward(x, gain, eps, result);
}

at::Tensor gated_srms_norm(const at::Tensor& x, const at::Tensor& gain, const at::Tensor& gate,
                           double eps, at::ScalarType result) {
  return at::GradMode::is_enabled() ? GatedSrmsNorm::apply(x, gain, gate, eps, result)
                                    : gated_srms_forward(x, gain, gate, eps, result);
}

at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& gain, const at::Tensor& bias,
                      double eps, at::ScalarType result) {
  return at::GradMode::is_enabled() ? LayerNorm::apply(x, gain, bias, eps, result)
                                    : layer_norm_forward(x, gain, bias, eps, result);
}

at::Tensor srms_norm_backward(const at::Tensor& gradient, const at::Tensor& x, double eps) {
  if (!kernel_fits(x, gradient.scalar_type(), &kernels::Kernels::srms_norm_backward)) {
    const at::Tensor wide = x.to(at::kFloat);
    const at::Tensor g = gradient.to(at::kFloat);
    const at::Tensor r = inverse_rms(wide, eps);
    const at::Tensor along = (g * wide).mean(-1, true) * r.square();
    return ((g - wide * along) * r).to(x.scalar_type());
  }
  const at::Tensor dense = x.contiguous();
  const at::Tensor g = gradient.contiguous();
  const at::Tensor d_x = empty_dense(x);
  const std::int64_t dim = x.size(-1);
  launch(x, row_count(x), row_grain(dim),
         [&](const kernels::Kernels& k, std::int64_t first, std::int64_t last) {
           k.srms_norm_backward(in(dense, first * dim), in(g, first * dim), out(d_x, first * dim),
                                last - first, dim, static_cast<float>(eps));
         });
  return d_x;
}

}  // namespace transnormer::ops
