#include "model/attention/lrpe.h"

#include <ATen/ATen.h>

#include "util/error.h"

namespace transnormer {

Lrpe::Lrpe(std::int64_t head_dim, at::Device device)
    : theta_(register_parameter("theta", at::empty({head_dim / 2}, at::device(device)))),
      reflect_(register_buffer("reflect", at::empty({head_dim}, at::device(device)))) {
  if (head_dim % 2 != 0) {
    throw UserError(
        "model.lrpe: expected an even width of a head's queries and keys (model.dim / model.heads, "
        "unless the attention has one of its own), since it turns pairs, got " +
        std::to_string(head_dim));
  }
}

ops::Encoding Lrpe::encoding(const ForwardContext& context, std::int64_t period) const {
  return {.feature = {},
          .theta = theta_,
          .reflect = reflect_,
          .first_position = context.first_position,
          .period = period,
          .positions = context.positions};
}

void Lrpe::initialize(const Initializer& initializer, const std::string& prefix) {
  at::NoGradGuard no_grad;
  const auto head_dim = static_cast<double>(reflect_.size(0));
  const at::Tensor exponents = at::arange(theta_.size(0), at::kDouble) * (-2 / head_dim);
  theta_.copy_(at::pow(10000.0, exponents));
  initializer.normal(reflect_, prefix + "reflect", 1);
  // On the CPU, so that the last bit is the same for any device.
  const at::Tensor direction = reflect_.to(at::kCPU, at::kDouble);
  reflect_.copy_(direction / direction.norm());
}

}  // namespace transnormer
