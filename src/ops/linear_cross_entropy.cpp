#include "ops/linear_cross_entropy.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <vector>

#include "ops/compute_type.h"

namespace transnormer::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

std::int64_t slice_rows(std::int64_t tokens, std::int64_t words,
                        const LinearCrossEntropyOptions& options, const at::Device& device) {
  const std::int64_t width = half_by_float(device, options.compute)
                                 ? 4
                                 : static_cast<std::int64_t>(c10::elementSize(options.compute));
  return std::clamp<std::int64_t>(options.memory_bytes / (words * width), 1,
                                  std::max<std::int64_t>(tokens, 1));
}

// Writes -log p(target) of a slice to `losses` and, where wanted, puts scale * d(loss)/d(logits)
// in the place of the logits.
void loss_of_slice(at::Tensor& logits, const at::Tensor& targets, at::Tensor losses,
                   bool with_gradient, double scale) {
  const at::Tensor wide = logits.to(at::kFloat);
  const at::Tensor counted = targets.ge(0).to(at::kFloat);
  const at::Tensor index = targets.clamp_min(0).unsqueeze(1);
  const at::Tensor log_sum = wide.logsumexp(1, true);
  losses.copy_((log_sum - wide.gather(1, index)).squeeze(1) * counted);
  if (with_gradient) {
    const at::Tensor weight = (counted * scale).unsqueeze(1);
    at::Tensor gradient = (wide - log_sum).exp_().mul_(weight);
    gradient.scatter_add_(1, index, -weight);
    logits.copy_(gradient);
  }
}

void check_targets(const at::Tensor& targets, std::int64_t words) {
  TORCH_CHECK(
      !targets.is_cpu() || targets.numel() == 0 || (targets.max().item<std::int64_t>() < words),
      "linear_cross_entropy: a target is not below the number of words, ", words);
}

struct Pass {
  at::Tensor losses;    // [tokens], fp32
  at::Tensor d_hidden;  // in hidden's type
};

// The whole pass; d(weight) is added to `d_weight` where that is defined.
Pass pass(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& targets,
          const LinearCrossEntropyOptions& options, bool with_d_hidden, at::Tensor d_weight) {
  const std::int64_t tokens = hidden.size(0);
  const std::int64_t words = weight.size(0);
  check_targets(targets, words);
  const at::Tensor input = product_operand(hidden, options.compute);
  const at::Tensor shadow = product_operand(weight, options.compute);
  Pass result;
  result.losses = at::empty({tokens}, hidden.options().dtype(at::kFloat));
  if (with_d_hidden) {
    result.d_hidden = at::empty_like(input);
  }
  const bool with_gradient = with_d_hidden || d_weight.defined();
  const std::int64_t rows = slice_rows(tokens, words, options, hidden.device());
  for (std::int64_t first = 0; first < tokens; first += rows) {
    const std::int64_t last = std::min(first + rows, tokens);
    const at::Tensor part = input.slice(0, first, last);
    at::Tensor logits = at::mm(part, shadow.t());
    loss_of_slice(logits, targets.slice(0, first, last), result.losses.slice(0, first, last),
                  with_gradient, options.scale);
    if (with_d_hidden) {
      at::Tensor out = result.d_hidden.slice(0, first, last);
      at::mm_out(out, logits, shadow);
    }
    if (d_weight.defined()) {
      d_weight.add_(at::mm(logits.t(), part));
    }
  }
  if (with_d_hidden) {
    result.d_hidden = result.d_hidden.to(hidden.scalar_type());
  }
  return result;
}

struct LinearCrossEntropy : torch::autograd::Function<LinearCrossEntropy> {
  static variable_list forward(AutogradContext* context, const at::Tensor& hidden,
                               const at::Tensor& weight, const at::Tensor& targets,
                               const LinearCrossEntropyOptions& options, at::Tensor weight_grad,
                               bool with_d_hidden, bool with_d_weight) {
    const bool own_buffer = with_d_weight && !weight_grad.defined();
    at::Tensor d_weight = own_buffer ? at::zeros_like(weight) : weight_grad;
    const Pass done = pass(hidden, weight, targets, options, with_d_hidden, d_weight);
    context->save_for_backward({done.d_hidden, own_buffer ? d_weight : at::Tensor()});
    at::Tensor nll = done.losses.sum(at::kDouble);
    context->mark_non_differentiable({nll});
    return {(nll * options.scale).to(at::kFloat), nll};
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const auto scaled = [&](const at::Tensor& x) { return x.defined() ? x * gradients[0] : x; };
    return {scaled(saved[0]), scaled(saved[1]), {}, {}, {}, {}, {}};
  }
};

}  // namespace

CrossEntropy linear_cross_entropy(const at::Tensor& hidden, const at::Tensor& weight,
                                  const at::Tensor& targets,
                                  const LinearCrossEntropyOptions& options) {
  const bool grad = at::GradMode::is_enabled();
  const variable_list result =
      LinearCrossEntropy::apply(hidden, weight, targets, options, at::Tensor(),
                                grad && hidden.requires_grad(), grad && weight.requires_grad());
  return {result[0], result[1]};
}

at::Tensor token_losses(const at::Tensor& hidden, const at::Tensor& weight,
                        const at::Tensor& targets, const LinearCrossEntropyOptions& options) {
  const at::NoGradGuard no_gradients;
  return pass(hidden, weight, targets, options, false, {}).losses;
}

}  // namespace transnormer::ops
