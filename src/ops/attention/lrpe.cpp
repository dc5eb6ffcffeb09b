#include "ops/attention/lrpe.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <utility>

#include "ops/attention/lrpe_table.h"

namespace transnormer::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Rotation {
  at::Tensor cosine;  // [time, 1, head_dim / 2], fp32
  at::Tensor sine;
  at::Tensor position;  // [time, 1, 1], fp64
};

Rotation rotation(const at::Tensor& theta, std::int64_t time, std::int64_t first_position,
                  std::int64_t period) {
  at::Tensor position =
      at::arange(first_position, first_position + time, theta.options().dtype(at::kLong));
  if (period > 0) {
    position = position.remainder(period);
  }
  position = position.to(at::kDouble).view({time, 1, 1});
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
                      std::int64_t first_position, std::int64_t period) {
  if (lrpe_kernel_fits(x)) {
    return lrpe_kernel(x, LrpeTable(theta, x.size(1), first_position, period), reflect);
  }
  const Rotation turn = rotation(theta, x.size(1), first_position, period);
  const auto [even, odd] = pairs(reflected(x.to(at::kFloat), reflect));
  return at::stack({even * turn.cosine - odd * turn.sine, even * turn.sine + odd * turn.cosine}, -1)
      .flatten(-2)
      .to(x.scalar_type());
}

LrpeGradients backward_of(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& theta,
                          const at::Tensor& reflect, std::int64_t first_position,
                          std::int64_t period) {
  if (lrpe_backward_kernel_fits(x)) {
    return lrpe_kernel_backward(gradient, x, LrpeTable(theta, x.size(1), first_position, period),
                                reflect);
  }
  const Rotation turn = rotation(theta, x.size(1), first_position, period);
  const auto [g_even, g_odd] = pairs(gradient.to(at::kFloat));
  const at::Tensor even = g_even * turn.cosine + g_odd * turn.sine;
  const at::Tensor odd = g_odd * turn.cosine - g_even * turn.sine;
  const at::Tensor d_x = reflected(at::stack({even, odd}, -1).flatten(-2), reflect);
  // Turning both the vector and its gradient back leaves their product with the quarter turn.
  const auto [z_even, z_odd] = pairs(reflected(x.to(at::kFloat), reflect));
  const at::Tensor d_angle = (odd * z_even - even * z_odd).sum(2, true).to(at::kDouble);
  return {d_x.to(x.scalar_type()), (d_angle * turn.position).sum({0, 1, 2})};
}

struct Lrpe : torch::autograd::Function<Lrpe> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& theta,
                            const at::Tensor& reflect, std::int64_t first_position,
                            std::int64_t period) {
    context->save_for_backward({x, theta, reflect});
    context->saved_data["first_position"] = first_position;
    context->saved_data["period"] = period;
    return forward_of(x, theta, reflect, first_position, period);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    LrpeGradients d = backward_of(gradients[0], saved[0], saved[1], saved[2],
                                  context->saved_data["first_position"].toInt(),
                                  context->saved_data["period"].toInt());
    return {d.x, d.theta.to(saved[1].scalar_type()), {}, {}, {}};
  }
};

}  // namespace

at::Tensor lrpe(const at::Tensor& x, const at::Tensor& theta, const at::Tensor& reflect,
                std::int64_t first_position, std::int64_t period) {
  return at::GradMode::is_enabled() ? Lrpe::apply(x, theta, reflect, first_position, period)
                                    : forward_of(x, theta, reflect, first_position, period);
}

}  // namespace transnormer::ops
