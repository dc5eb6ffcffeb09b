#include "model/graphed_pass.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/variable.h>

#include <utility>

namespace transnormer {

CapturePlan::Step CapturePlan::next(const PassKind& kind, std::int64_t update) {
  if (captured_ == kind) {
    seen_.reset();
    return Step::replay;
  }
  if (seen_ == kind && seen_update_ != update) {
    seen_.reset();
    captured_ = kind;
    return Step::capture;
  }
  // The first kind of an update counts: its last micro-batch may be smaller.
  if (!seen_ || seen_update_ != update) {
    seen_ = kind;
    seen_update_ = update;
  }
  return Step::run;
}

GraphedPass::GraphedPass(std::vector<at::Tensor> parameters, Pass pass)
    : parameters_(std::move(parameters)), pass_(std::move(pass)) {}

at::Tensor GraphedPass::run(const Tensors& batch, const ForwardContext& context,
                            const at::Tensor& scale) {
  if (!possible(scale.device()) || !fault_.empty()) {
    return pass_(batch, context, scale);
  }
  PassKind kind{{}, context.compute, context.activation_checkpointing};
  for (const auto& [name, tensor] : batch) {
    kind.sizes[name] = tensor.sizes().vec();
  }
  const CapturePlan::Step step = plan_.next(kind, context.update);
  if (step == CapturePlan::Step::run ||
      (step == CapturePlan::Step::capture && !capture(batch, context))) {
    return pass_(batch, context, scale);
  }
  return replay(batch, context, scale);
}

bool GraphedPass::capture(const Tensors& like, ForwardContext context) {
  graph_.reset();  // its memory is needed for the new one
  batch_.clear();
  for (const auto& [name, tensor] : like) {
    batch_[name] = at::empty_like(tensor);
  }
  const auto options = at::TensorOptions().device(parameters_.front().device());
  counters_ = at::zeros({2}, options.dtype(at::kLong));
  scale_ = at::zeros({}, options.dtype(at::kFloat));
  static_assert(sizeof(ops::kernels::LiveCounters) == 2 * sizeof(std::int64_t));
  context.live = static_cast<const ops::kernels::LiveCounters*>(counters_.const_data_ptr());
  context.should_stop = nullptr;
  // Copies of the weights must be made in the graph, since they are old at each replay.
  forget_copies();
  try {
    graph_.emplace([&] { sums_ = pass_(batch_, context, scale_); });
  } catch (const c10::Error& error) {
    fault_ = error.what_without_backtrace();
    forget_copies();  // those of the attempt were never made
    return false;
  }
  return true;
}

at::Tensor GraphedPass::replay(const Tensors& batch, const ForwardContext& context,
                               const at::Tensor& scale) {
  const at::NoGradGuard no_grad;
  for (const auto& [name, tensor] : batch) {
    batch_.at(name).copy_(tensor);
  }
  scale_.copy_(scale);
  const at::Tensor counters = at::tensor({context.update, context.first_sample}, at::kLong);
  counters_.copy_(counters.pin_memory(), /*non_blocking=*/true);
  graph_->replay();
  return sums_;
}

void GraphedPass::forget_copies() const {
  for (const at::Tensor& parameter : parameters_) {
    torch::autograd::impl::bump_version(parameter);
  }
}

}  // namespace transnormer
