#include "ops/attention/lrpe.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <utility>

#include "ops/attention/lrpe_table.h"
#include "ops/runtime/carry.h"

namespace transnormer::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Rotation {
  at::Tensor cosine;  // [time, 1, head_dim / 2], fp32
  at::Tensor sine;
  at::Tensor position;  // [time, 1, 1], fp64
};

Rotation rotation(const at::Tensor& theta, std::int64_t time, const Positions& positions) {
  const at::Tensor position =
      position_numbers(positions, time, theta.device()).to(at::kDouble).view({time, 1, 1});
  const at::Tensor angle = position * theta.to(at::kDouble);
  return {angle.cos().to(at::kFloat), angle.sin().to(at::kFloat), position};
}

at::Tensor reflected(const at::Tensor& x, const at::Tensor& unit) {
  return x - (x * unit).sum(-1, true) * (2 * unit);
}

// Splits the last dimension into its even and odd places.
std::pair<at::Tensor, at::Tensor> pairs(const at::Tensor& x) {
  const at::Tensor split = x.unflatten(-1, {-1, 2});
  return {split.select(-1, 0), split.select(-1, 1)};
}

at::Tensor forward_of(const at::Tensor& x, const at::Tensor& theta, const at::Tensor& reflect,
                      const Positions& positions) {
  if (lrpe_kernel_fits(x)) {
    return lrpe_kernel(x, LrpeTable(theta, reflect, x.size(1), positions));
  }
  const Rotation r = rotation(theta, x.size(1), positions);
  const auto [even, odd] = pairs(reflected(x.to(at::kFloat), reflect));
  return at::stack({even * r.cosine - odd * r.sine, even * r.sine + odd * r.cosine}, -1)
      .flatten(-2)
      .to(x.scalar_type());
}

LrpeGradients backward_of(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& theta,
                          const at::Tensor& reflect, const Positions& positions) {
  if (lrpe_backward_kernel_fits(x)) {
    return lrpe_kernel_backward(gradient, x, LrpeTable(theta, reflect, x.size(1), positions));
  }
  const Rotation r = rotation(theta, x.size(1), positions);
  const auto [g_even, g_odd] = pairs(gradient.to(at::kFloat));
  const at::Tensor even = g_even * r.cosine + g_odd * r.sine;
  const at::Tensor odd = g_odd * r.cosine - g_even * r.sine;
  const at::Tensor d_x = reflected(at::stack({even, odd}, -1).flatten(-2), reflect);
  // Rotating both the vector and its gradient back leaves their product with the quarter turn.
  const auto [z_even, z_odd] = pairs(reflected(x.to(at::kFloat), reflect));
  const at::Tensor d_angle = (odd * z_even - even * z_odd).sum(2, true).to(at::kDouble);
  return {d_x.to(x.scalar_type()), (d_angle * r.position).sum({0, 1, 2})};
}

struct Lrpe : torch::autograd::Function<Lrpe> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& theta,
                            const at::Tensor& reflect, const Positions& positions) {
    context->save_for_backward({x, theta, reflect});
    carry(context, positions);
    return forward_of(x, theta, reflect, positions);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    LrpeGradients d =
        backward_of(gradients[0], saved[0], saved[1], saved[2], carried<Positions>(context));
    return {d.x, d.theta.to(saved[1].scalar_type()), {}, {}};
  }
};

}  // namespace

namespace {

// By operations that autograd knows; x: fp64 [batch, time, heads, head_dim].
at::Tensor in_double(const at::Tensor& x, const at::Tensor& theta, const at::Tensor& reflect,
                     const Positions& where) {
  const at::Tensor position =
      position_numbers(where, x.size(1), theta.device()).to(at::kDouble).view({-1, 1, 1});
  const at::Tensor angle = position * theta.to(at::kDouble);
  const auto [even, odd] = pairs(reflected(x, reflect.to(at::kDouble)));
  return at::stack({even * angle.cos() - odd * angle.sin(), even * angle.sin() + odd * angle.cos()},
                   -1)
      .flatten(-2);
}

}  // namespace

at::Tensor lrpe(const at::Tensor& x, const at::Tensor& theta, const at::Tensor& reflect,
                std::int64_t first_position, std::int64_t period, const at::Tensor& positions) {
  const auto rotated = [&](const at::Tensor& operand, const Positions& where) {
    if (operand.scalar_type() == at::kDouble) {
      return in_double(operand, theta, reflect, where);
    }
    return at::GradMode::is_enabled() ? Lrpe::apply(operand, theta, reflect, where)
                                      : forward_of(operand, theta, reflect, where);
  };
  if (!positions.defined()) {
    return rotated(x, {first_position, period, {}});
  }
  TORCH_CHECK(positions.sizes() == x.sizes().slice(0, 2), "lrpe: positions of sizes ",
              positions.sizes(), " for an operand of sizes ", x.sizes());
  // One row of all tokens, each at a position of its own.
  return rotated(x.flatten(0, 1).unsqueeze(0), {0, period, positions.reshape({-1})}).view_as(x);
}

}  // namespace transnormer::ops
