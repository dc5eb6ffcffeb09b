#include "ops/loss/linear_cross_entropy.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "ops/loss/linear_cross_entropy_tensor.h"
#include "ops/runtime/carry.h"
#include "ops/runtime/launch.h"
#include "ops/runtime/row_pitch.h"
#include "ops/weights/compute_type.h"
#include "ops/weights/weight_gradient.h"

namespace transnormer::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// On a CPU a product of 256 rows is about as fast as one of more, one of 342 a third slower; beyond
// 1,024 the slice leaves the caches for nothing.
constexpr std::int64_t kSliceStep = 256;
constexpr std::int64_t kMostSteps = 4;
constexpr std::int64_t kSliceBytes = 160LL << 20;
// A GPU has more memory and wants larger products.
constexpr std::int64_t kSliceBytesOnGpu = 2LL << 30;

// Tokens a slice, within the budget.
std::int64_t slice_rows(std::int64_t vocab_size, std::int64_t element_bytes, std::int64_t given,
                        bool cpu) {
  const std::int64_t budget = given > 0 ? given : (cpu ? kSliceBytes : kSliceBytesOnGpu);
  const std::int64_t most = std::max<std::int64_t>(budget / (vocab_size * element_bytes), 1);
  const std::int64_t steps = most / kSliceStep;
  if (!cpu || steps == 0) {
    return most;
  }
  return std::min(steps, kMostSteps) * kSliceStep;
}

// Writes -log p(target) of a slice to `losses` and, where there is a scale, puts
// scale * d(loss)/d(logits) in the place of the logits.
void loss_of_slice(at::Tensor& logits, const at::Tensor& targets, at::Tensor& losses,
                   const at::Tensor& scale) {
  if (!kernel_serves(logits, &kernels::Kernels::cross_entropy)) {
    loss_of_slice_by_tensors(logits, targets, losses, scale);
    return;
  }
  const std::int64_t vocab_size = logits.size(1);
  const std::int64_t stride = row_stride_of(logits);
  const auto* target = targets.const_data_ptr<std::int64_t>();
  auto* loss = losses.mutable_data_ptr<float>();
  const float* factor = scale.defined() ? scale.const_data_ptr<float>() : nullptr;
  launch(logits, logits.size(0), 1,
         [&](const kernels::Kernels& k, std::int64_t first, std::int64_t last) {
           k.cross_entropy(out(logits, first * stride), target + first, loss + first, last - first,
                           vocab_size, stride, factor);
         });
}

void check_targets(const at::Tensor& targets, std::int64_t vocab_size) {
  TORCH_CHECK(!targets.is_cpu() || targets.numel() == 0 ||
                  (targets.max().item<std::int64_t>() < vocab_size),
              "linear_cross_entropy: a target is not below the size of the vocabulary, ",
              vocab_size);
}

// The scale as an fp32 scalar where `hidden` lies.
at::Tensor scale_on(const at::Tensor& hidden, const LinearCrossEntropyOptions& options) {
  return options.scale.defined() ? options.scale : at::ones({}, hidden.options().dtype(at::kFloat));
}

struct Pass {
  at::Tensor losses;    // [tokens], fp32
  at::Tensor d_hidden;  // in hidden's type
};

// Sums of gradients, or undefined where they are not wanted.
struct LayerGradients {
  at::Tensor weight{};
  at::Tensor bias{};
};

// The whole pass; d(weight) and d(bias) are added to what is defined of `sums`.
Pass pass(const at::Tensor& hidden, const OutputLayer& output, const at::Tensor& targets,
          const LinearCrossEntropyOptions& options, bool with_d_hidden,
          const LayerGradients& sums = {}) {
  const std::int64_t tokens = hidden.size(0);
  const std::int64_t vocab_size = output.weight.value().size(0);
  check_targets(targets, vocab_size);
  const at::Tensor input = product_operand(hidden, options.compute);
  const at::Tensor weights = output.weight.operand(options.compute);
  const at::Tensor biases =
      output.bias.defined() ? output.bias.operand(options.compute) : at::Tensor();
  const at::Tensor wanted = targets.contiguous();
  Pass result;
  result.losses = at::empty({tokens}, hidden.options().dtype(at::kFloat));
  if (with_d_hidden) {
    result.d_hidden = at::empty(input.sizes(), input.options());
  }
  const bool with_gradient = with_d_hidden || sums.weight.defined() || sums.bias.defined();
  const at::Tensor scale = with_gradient ? scale_on(hidden, options) : at::Tensor();
  const std::int64_t rows =
      std::min(std::max<std::int64_t>(tokens, 1),
               slice_rows(vocab_size, static_cast<std::int64_t>(input.element_size()),
                          options.memory_bytes, input.is_cpu()));
  const at::Tensor buffer = empty_rows({rows, vocab_size}, input.options());
  for (std::int64_t first = 0; first < tokens; first += rows) {
    throw_if_unwanted(options.should_stop);
    const std::int64_t last = std::min(first + rows, tokens);
    const at::Tensor part = input.slice(0, first, last);
    at::Tensor logits = buffer.narrow(0, 0, last - first);
    if (biases.defined()) {
      at::addmm_out(logits, biases, part, weights.t());
    } else {
      at::mm_out(logits, part, weights.t());
    }
    at::Tensor losses = result.losses.slice(0, first, last);
    loss_of_slice(logits, wanted.slice(0, first, last), losses, scale);
    if (with_gradient && half_by_float(hidden.device(), options.compute)) {
      logits.copy_(product_operand(logits, options.compute));
    }
    if (with_d_hidden) {
      at::Tensor d_part = result.d_hidden.slice(0, first, last);
      at::mm_out(d_part, logits, weights);
    }
    if (sums.weight.defined()) {
      add_weight_gradient(sums.weight, logits, part);
    }
    if (sums.bias.defined()) {
      add_bias_gradient(sums.bias, logits);
    }
  }
  if (with_d_hidden) {
    result.d_hidden = result.d_hidden.to(hidden.scalar_type());
  }
  return result;
}

// What has to be computed beside the loss.
struct Wanted {
  bool d_hidden = false;
  bool d_weight = false;
  bool d_bias = false;
};

struct LinearCrossEntropy : torch::autograd::Function<LinearCrossEntropy> {
  static variable_list forward(AutogradContext* context, const at::Tensor& hidden,
                               const at::Tensor&, const std::optional<at::Tensor>&,
                               const OutputLayer& output, const at::Tensor& targets,
                               const LinearCrossEntropyOptions& options, const Wanted& wanted) {
    LayerGradients sums;
    if (wanted.d_weight) {
      sums.weight = gradient_sum(output.weight);
    }
    if (wanted.d_bias) {
      sums.bias = gradient_sum(output.bias);
    }
    const Pass done = pass(hidden, output, targets, options, wanted.d_hidden, sums);
    const auto left = [](bool wants, const Weight& weight, const at::Tensor& sum) {
      return wants && weight.gathers_gradient() ? at::Tensor() : sum;
    };
    context->save_for_backward({done.d_hidden, left(wanted.d_weight, output.weight, sums.weight),
                                left(wanted.d_bias, output.bias, sums.bias)});
    carry(context, (wanted.d_weight && output.weight.gathers_gradient()) ||
                       (wanted.d_bias && output.bias.gathers_gradient()));
    at::Tensor nll = done.losses.sum(at::kDouble);
    context->mark_non_differentiable({nll});
    return {(nll * scale_on(hidden, options)).to(at::kFloat), nll};
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const at::Tensor& given = gradients[0];
    // On other devices the check would make the host wait.
    TORCH_CHECK(
        !carried<bool>(context) || !given.is_cpu() || given.item<double>() == 1,
        "linear_cross_entropy: d(weight) is already in the weight's gradient, so the loss can only "
        "be differentiated with a gradient of 1; use `scale`");
    const variable_list saved = context->get_saved_variables();
    const auto scaled = [&given](const at::Tensor& x) {
      return x.defined() ? (x * given).to(x.scalar_type()) : x;
    };
    return {scaled(saved[0]), scaled(saved[1]), scaled(saved[2]), {}, {}, {}, {}};
  }
};

}  // namespace

CrossEntropy linear_cross_entropy(const at::Tensor& hidden, const OutputLayer& output,
                                  const at::Tensor& targets,
                                  const LinearCrossEntropyOptions& options) {
  Wanted wanted;
  if (at::GradMode::is_enabled()) {
    wanted.d_hidden = hidden.requires_grad();
    wanted.d_weight = output.weight.anchor().requires_grad();
    wanted.d_bias = output.bias.defined() && output.bias.anchor().requires_grad();
  }
  const variable_list result = LinearCrossEntropy::apply(
      hidden, output.weight.anchor(),
      output.bias.defined() ? std::optional(output.bias.anchor()) : std::nullopt, output, targets,
      options, wanted);
  return {result[0], result[1]};
}

at::Tensor token_losses(const at::Tensor& hidden, const OutputLayer& output,
                        const at::Tensor& targets, const LinearCrossEntropyOptions& options) {
  const at::NoGradGuard no_gradients;
  return pass(hidden, output, targets, options, false).losses;
}

}  // namespace transnormer::ops
