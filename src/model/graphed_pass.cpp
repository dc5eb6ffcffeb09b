#include "model/graphed_pass.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/variable.h>

#include <memory>
#include <utility>

namespace transnormer {
namespace {

GraphedPass::Replay by_cuda_graph(const std::function<void()>& body) {
  const auto graph = std::make_shared<ops::CudaGraph>(body);
  return [graph] { graph->replay(); };
}

enum class Likeness { same, different, not_told };

// Whether numbers are equal to 1e-3, or, the small among them, to 1e-6 of the largest. Not told
// where both hold what is not finite.
Likeness likeness(const at::Tensor& found, const at::Tensor& expected) {
  const at::Tensor a = found.to(at::kCPU, at::kDouble);
  const at::Tensor b = expected.to(at::kCPU, at::kDouble);
  if (b.numel() == 0) {
    return Likeness::same;
  }
  const bool finite = at::isfinite(a).all().item<bool>();
  if (finite != at::isfinite(b).all().item<bool>()) {
    return Likeness::different;
  }
  if (!finite) {
    return Likeness::not_told;
  }
  const at::Tensor size = b.abs();
  const at::Tensor allowed = at::maximum(size * 1e-3, size.max() * 1e-6);
  return ((a - b).abs() <= allowed).all().item<bool>() ? Likeness::same : Likeness::different;
}

}  // namespace

CapturePlan::Step CapturePlan::next(const PassKind& kind, std::int64_t update) {
  if (captured_ == kind) {
    seen_.reset();
    return Step::replay;
  }
  if (seen_ == kind && seen_update_ != update) {
    seen_.reset();
    captured_.reset();
    return Step::capture;
  }
  // The first kind of an update counts: the last micro-batch of a task whose rows differ in length
  // may be smaller.
  if (!seen_ || seen_update_ != update) {
    seen_ = kind;
    seen_update_ = update;
  }
  return Step::run;
}

void CapturePlan::captured(const PassKind& kind) {
  captured_ = kind;
}

GraphedPass::GraphedPass(std::vector<at::Tensor> parameters, Pass pass, Capture capture)
    : parameters_(std::move(parameters)), pass_(std::move(pass)), capture_(std::move(capture)) {}

at::Tensor GraphedPass::run(const Tensors& batch, const ForwardContext& context,
                            const at::Tensor& scale) {
  if (!capture_ && possible(scale.device())) {
    capture_ = by_cuda_graph;
  }
  if (!capture_ || !fault_.empty()) {
    return pass_(batch, context, scale);
  }
  PassKind kind{{}, context.compute, context.activation_checkpointing};
  for (const auto& [name, tensor] : batch) {
    kind.sizes[name] = tensor.sizes().vec();
  }
  switch (plan_.next(kind, context.update)) {
    case CapturePlan::Step::run:
      return pass_(batch, context, scale);
    case CapturePlan::Step::capture:
      return run_and_capture(kind, batch, context, scale);
    case CapturePlan::Step::replay:
      break;
  }
  return replay(batch, context, scale);
}

at::Tensor GraphedPass::run_and_capture(const PassKind& kind, const Tensors& batch,
                                        const ForwardContext& context, const at::Tensor& scale) {
  drop_graph();  // its memory is needed for the new one
  if (!at::all(gradient_norms() == 0).item<bool>()) {
    // Another pass came before: the next update may begin with this kind.
    return pass_(batch, context, scale);
  }
  const at::Tensor launched = pass_(batch, context, scale).clone();
  const at::Tensor norms = gradient_norms();
  if (!capture(batch, context)) {
    return launched;
  }
  zero_gradients();
  const at::Tensor replayed = replay(batch, context, scale);
  const Likeness sums = likeness(replayed, launched);
  const Likeness gradients = likeness(gradient_norms(), norms);
  if (sums == Likeness::same && gradients == Likeness::same) {
    plan_.captured(kind);
    return replayed;
  }
  if (sums == Likeness::different || gradients == Likeness::different) {
    fault_ = std::string("a replay gave ") +
             (sums == Likeness::different ? "another loss" : "other gradients") +
             " than the pass itself";
  }
  drop_graph();  // where it cannot be told, as in a pass that overflows, another one is captured
  zero_gradients();
  return pass_(batch, context, scale);
}

bool GraphedPass::capture(const Tensors& like, ForwardContext context) {
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
    replay_ = capture_([this, context] { sums_ = pass_(batch_, context, scale_); });
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
  counters_.copy_(counters_.is_cuda() ? counters.pin_memory() : counters, /*non_blocking=*/true);
  replay_();
  return sums_;
}

void GraphedPass::drop_graph() {
  if (replay_) {
    replay_ = {};
    forget_copies();
  }
}

at::Tensor GraphedPass::gradient_norms() const {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> norms;
  for (const at::Tensor& parameter : parameters_) {
    const at::Tensor& gradient = parameter.grad();
    norms.push_back(gradient.defined() ? gradient.norm().to(at::kDouble)
                                       : at::zeros({}, parameter.options().dtype(at::kDouble)));
  }
  return norms.empty() ? at::zeros({0}, at::kDouble) : at::stack(norms).to(at::kCPU);
}

void GraphedPass::zero_gradients() const {
  const at::NoGradGuard no_grad;
  for (const at::Tensor& parameter : parameters_) {
    if (parameter.grad().defined()) {
      parameter.mutable_grad().zero_();
    }
  }
}

void GraphedPass::forget_copies() const {
  for (const at::Tensor& parameter : parameters_) {
    torch::autograd::impl::bump_version(parameter);
  }
}

}  // namespace transnormer
