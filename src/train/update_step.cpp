#include "train/update_step.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "log/console.h"
#include "ops/runtime/stop_check.h"
#include "optim/gradients.h"

namespace transnormer {
namespace {

// For a GPU the copy runs beside the computation, from pinned memory.
at::Tensor on_device(const at::Tensor& tensor, at::Device device) {
  return device.is_cpu() ? tensor : tensor.pin_memory().to(device, /*non_blocking=*/true);
}

std::int64_t count_of(const std::vector<Batch>& batches) {
  std::int64_t sum = 0;
  for (const Batch& batch : batches) {
    sum += batch.count;
  }
  return sum;
}

}  // namespace

UpdateStep::UpdateStep(LossFunction loss, TransNormer& model, Optimizer& optimizer,
                       LossScaler& scaler, const dist::World& world, const Options& options)
    : model_(model),
      optimizer_(optimizer),
      scaler_(scaler),
      options_(options),
      world_(world),
      reduction_(world, model, optimizer, options.distributed),
      pass_(model.parameters(),
            [this, loss = std::move(loss)](const Tensors& batch, const ForwardContext& context,
                                           const at::Tensor& scale) {
              const Loss made = loss(model_, batch, context, scale);
              if (context.watcher != nullptr) {
                reduction_.on_loss(made.output_gradient_is_made);
              }
              made.scaled.backward();
              return made.sums;
            }) {}

at::Tensor UpdateStep::run_micro_batch(const Batch& batch, ForwardContext context,
                                       const at::Tensor& scale) {
  context.first_sample = batch.first_position;
  Tensors tensors;
  for (const auto& [name, tensor] : batch.tensors) {
    tensors[name] = on_device(tensor, model_.device());
  }
  // Ranks that share sequences talk within a pass, and one of them alone may launch it again.
  const bool captures = options_.captures && model_.can_be_captured() &&
                        context.watcher == nullptr && !context.shares_sequences();
  return captures ? pass_.run(tensors, context, scale) : pass_.launch(tensors, context, scale);
}

void UpdateStep::warn_of_graph() {
  if (!graph_fault().empty() && !told_fault_) {
    told_fault_ = true;
    log::warn("passes do not go by a CUDA graph, which costs small models speed: " + graph_fault());
  }
}

std::optional<UpdateStep::Measured> UpdateStep::measure(
    const std::vector<Batch>& batches, std::int64_t update,
    const std::function<bool()>& should_stop, const std::function<std::vector<double>()>& wishes) {
  ForwardContext context;
  context.compute = options_.compute;
  context.training = true;
  context.activation_checkpointing = options_.activation_checkpointing;
  context.seed = options_.seed;
  context.update = update;
  context.sequence = &world_.sequence();
  context.should_stop = should_stop && world_.size() == 1 ? &should_stop : nullptr;

  Measured measured;
  std::vector<double> count{static_cast<double>(count_of(batches))};
  world_.all().sum(count);
  measured.sums.count = static_cast<std::int64_t>(count[0]);
  const double divisor = std::max(count[0], 1.0);
  const at::Tensor scale =
      on_device(at::scalar_tensor(scaler_.scale() / divisor, at::kFloat), model_.device());
  optimizer_.zero_gradients();
  at::Tensor sums;
  try {
    for (const Batch& batch : batches) {
      ops::throw_if_unwanted(context.should_stop);
      if (reduction_.is_needed() && &batch == &batches.back()) {
        reduction_.begin(batches.size() > 1);
        context.watcher = &reduction_;
      }
      const at::Tensor added = run_micro_batch(batch, context, scale);
      sums = sums.defined() ? sums + added : added.clone();
    }
  } catch (const ops::PassStopped&) {
    return std::nullopt;
  }
  warn_of_graph();
  reduction_.finish();
  scaler_.unscale(optimizer_.flat_gradients());
  if (wishes) {
    measured.wishes = wishes();
  }
  return reduction_.is_needed() ? in_several(std::move(measured), sums)
                                : alone(std::move(measured), sums);
}

UpdateStep::Measured UpdateStep::alone(Measured measured, const at::Tensor& sums) const {
  measured.norms = gradient_norms(optimizer_.gradients());
  const at::Tensor figures =
      at::cat({sums, global_norm(measured.norms).view({1})}).to(at::kCPU).contiguous();
  const auto* figure = figures.const_data_ptr<double>();
  measured.sums.loss = figure[0];
  measured.sums.metrics.assign(figure + 1, figure + sums.numel());
  measured.grad_norm = figure[sums.numel()];
  return measured;
}

// All that is agreed on goes in one sum.
UpdateStep::Measured UpdateStep::in_several(Measured measured, const at::Tensor& sums) const {
  const at::Tensor here = sums.to(at::kCPU).contiguous();
  const auto* const sum = here.const_data_ptr<double>();
  std::vector<double> figures(sum, sum + here.numel());
  figures.insert(figures.end(), measured.wishes.begin(), measured.wishes.end());
  measured.norms = reduction_.norms(figures);
  measured.sums.loss = figures[0];
  measured.sums.metrics.assign(figures.begin() + 1, figures.begin() + here.numel());
  measured.wishes.assign(figures.begin() + here.numel(), figures.end());
  measured.grad_norm = global_norm(measured.norms).item<double>();
  measured.norms = measured.norms.to(model_.device());
  return measured;
}

Verdict UpdateStep::judge(const Measured& measured, const TrainConfig& policy,
                          TrainingState& state) {
  return judge_update(measured.sums.loss, measured.grad_norm, policy, scaler_, state);
}

void UpdateStep::apply(const Measured& measured, double lr) {
  clip_gradients(optimizer_.flat_gradients(), global_norm(measured.norms), options_.clip_norm);
  optimizer_.step(lr);
}

}  // namespace transnormer
