#include "ops/loss/linear_cross_entropy_tensor.h"

#include <ATen/ATen.h>

namespace transnormer::ops {

void loss_of_slice_by_tensors(at::Tensor& logits, const at::Tensor& targets, at::Tensor& losses,
                              const at::Tensor& scale) {
  const at::Tensor wide = logits.to(at::kFloat);
  const at::Tensor counted = targets.ge(0).to(at::kFloat);
  const at::Tensor index = targets.clamp_min(0).unsqueeze(1);
  const at::Tensor log_sum = wide.logsumexp(1, true);
  losses.copy_((log_sum - wide.gather(1, index)).squeeze(1) * counted);
  if (scale.defined()) {
    const at::Tensor weight = (counted * scale).unsqueeze(1);
    at::Tensor gradient = (wide - log_sum).exp_().mul_(weight);
    gradient.scatter_add_(1, index, -weight);
    logits.copy_(gradient);
  }
}

}  // namespace transnormer::ops
