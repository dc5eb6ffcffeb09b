#include "model/norm.h"

#include "ops/norm.h"

namespace transnormer {

Norm::Norm(NormKind kind, std::int64_t dim, double eps, at::Device device)
    : kind_(kind), eps_(eps) {
  if (kind == NormKind::rms || kind == NormKind::layer) {
    weight_ = register_parameter("weight", at::empty({dim}, at::device(device)));
  }
  if (kind == NormKind::layer) {
    bias_ = register_parameter("bias", at::empty({dim}, at::device(device)));
  }
}

at::Tensor Norm::forward(const at::Tensor& x, at::ScalarType result) const {
  switch (kind_) {
    case NormKind::srms:
      return ops::srms_norm(x, eps_, result);
    case NormKind::rms:
      return ops::rms_norm(x, weight_, eps_, result);
    case NormKind::layer:
      return ops::layer_norm(x, weight_, bias_, eps_, result);
    case NormKind::none:
      break;
  }
  return x.to(result);
}

ops::StreamAndNorm Norm::forward(const at::Tensor& x, const at::Tensor& y, const ops::Drop& drop,
                                 at::ScalarType result) const {
  if (kind_ == NormKind::srms) {
    return ops::residual_srms_norm(x, y, drop, eps_, result);
  }
  const at::Tensor stream = y.defined() ? ops::residual(x, y, drop) : x;
  return {stream, forward(stream, result)};
}

void Norm::initialize(const Initializer&, const std::string&) {
  at::NoGradGuard no_grad;
  if (weight_.defined()) {
    weight_.fill_(1);
  }
  if (bias_.defined()) {
    bias_.zero_();
  }
}

}  // namespace transnormer
