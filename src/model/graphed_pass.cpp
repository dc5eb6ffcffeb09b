#include "model/graphed_pass.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/variable.h>

#include <utility>

#include "model/training_pass.h"

namespace transnormer {

CapturePlan::Step CapturePlan::next(const PassKind& kind, std::int64_t update) {
  if (recorded_ == kind) {
    seen_.reset();
    return Step::replay;
  }
  if (seen_ == kind && seen_update_ != update) {
    seen_.reset();
    recorded_ = kind;
    return Step::record;
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

GraphedPass::GraphedPass(TransNormer& model)
    : GraphedPass(model.parameters(), [&model](const at::Tensor& inputs, const at::Tensor& targets,
                                               const ForwardContext& context, double scale) {
        return training_pass(model, inputs, targets, context, scale);
      }) {}

at::Tensor GraphedPass::run(const at::Tensor& inputs, const at::Tensor& targets,
                            const ForwardContext& context, double scale) {
  if (!ops::CudaGraph::possible(inputs.device()) || !fault_.empty()) {
    return pass_(inputs, targets, context, scale);
  }
  const PassKind kind{inputs.sizes().vec(), context.compute, context.activation_checkpointing,
                      scale};
  const CapturePlan::Step step = plan_.next(kind, context.update);
  if (step == CapturePlan::Step::run ||
      (step == CapturePlan::Step::record && !record(inputs, context, scale))) {
    return pass_(inputs, targets, context, scale);
  }
  return replay(inputs, targets, context);
}

bool GraphedPass::record(const at::Tensor& like, ForwardContext context, double scale) {
  recording_.reset();  // its memory is needed for the new one
  inputs_ = at::empty_like(like);
  targets_ = at::empty_like(like);
  counters_ = at::zeros({2}, like.options());
  static_assert(sizeof(ops::kernels::LiveCounters) == 2 * sizeof(std::int64_t));
  context.live = static_cast<const ops::kernels::LiveCounters*>(counters_.const_data_ptr());
  context.should_stop = nullptr;
  // Copies of the weights must be made in the recording, since they are old at each replay.
  forget_copies();
  try {
    recording_.emplace([&] { loss_ = pass_(inputs_, targets_, context, scale); });
  } catch (const c10::Error& error) {
    fault_ = error.what_without_backtrace();
    forget_copies();  // those of the attempt were never made
    return false;
  }
  return true;
}

at::Tensor GraphedPass::replay(const at::Tensor& inputs, const at::Tensor& targets,
                               const ForwardContext& context) {
  const at::NoGradGuard no_grad;
  inputs_.copy_(inputs);
  targets_.copy_(targets);
  const at::Tensor counters = at::tensor({context.update, context.first_sample}, at::kLong);
  counters_.copy_(counters.pin_memory(), /*non_blocking=*/true);
  recording_->replay();
  return loss_;
}

void GraphedPass::forget_copies() const {
  for (const at::Tensor& parameter : parameters_) {
    torch::autograd::impl::bump_version(parameter);
  }
}

}  // namespace transnormer
