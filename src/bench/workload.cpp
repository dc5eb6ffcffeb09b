#include "bench/workload.h"

#include <ATen/ATen.h>

#include <cmath>
#include <string>
#include <vector>

#include "bench/decode_workload.h"
#include "model/flops.h"
#include "model/footprint.h"
#include "model/weights.h"
#include "ops/loss/linear_cross_entropy.h"
#include "ops/runtime/device_memory.h"
#include "optim/loss_scaler.h"
#include "optim/registry.h"
#include "task/causal.h"
#include "train/update_step.h"
#include "util/error.h"
#include "util/units.h"

namespace transnormer {
namespace {

// A lower bound, so that what could work is never refused.
double least_memory(const BenchCase& bench_case, const BenchOptions& options,
                    const ModelSize& size) {
  const double tokens =
      static_cast<double>(bench_case.batch_size) * static_cast<double>(bench_case.length);
  const double width = static_cast<double>(bench_case.model.dim) *
                       static_cast<double>(at::elementSize(options.compute));
  const double weights = 4 * estimate_parameters(bench_case.model, size);
  switch (options.mode) {
    case BenchMode::train: {
      const MemoryEstimate estimate =
          training_memory(bench_case.model, size, optimizer_shape(options.optimizer),
                          {bench_case.batch_size, bench_case.length, options.compute,
                           options.activation_checkpointing});
      return estimate.weights + estimate.gradients + estimate.optimizer +
             estimate.activations / 2;  // the estimate is a rough one
    }
    case BenchMode::infer:
      return weights + tokens * (2 * width + 16);
    case BenchMode::decode:
      return weights + tokens * 8;
  }
  return weights;
}

// A table of learned positions needs room for the tokens that decoding adds, the untimed one too.
ModelSize bench_size(const BenchCase& bench_case, const BenchOptions& options) {
  const std::int64_t added =
      options.mode == BenchMode::decode ? most_decode_steps(bench_case.length) + 1 : 0;
  return {bench_case.vocab_size, bench_case.length + added};
}

class ModelWorkload : public Workload {
 public:
  ModelWorkload(const BenchCase& bench_case, const BenchOptions& options)
      : batch_(bench_case.batch_size), length_(bench_case.length) {
    const ModelSize size = bench_size(bench_case, options);
    model_ = std::make_unique<TransNormer>(bench_case.model, size, options.device);
    initialize(*model_, 1);
    context_.compute = options.compute;
    context_.activation_checkpointing = options.activation_checkpointing;
  }

  [[nodiscard]] const TransNormer& model() const override { return *model_; }

 protected:
  [[nodiscard]] at::Tensor random_tokens(std::int64_t length) const {
    return at::randint(model_->size().vocab_size, {batch_, length},
                       at::dtype(at::kLong).device(model_->device()));
  }
  [[nodiscard]] FlopsPerToken flops() const { return flops_per_token(*model_, length_); }
  [[nodiscard]] ops::LinearCrossEntropyOptions loss_options() const {
    ops::LinearCrossEntropyOptions options;
    options.compute = context_.compute;
    return options;
  }

  std::int64_t batch_;
  std::int64_t length_;
  std::unique_ptr<TransNormer> model_;
  ForwardContext context_;
};

class TrainWorkload final : public ModelWorkload {
 public:
  TrainWorkload(const BenchCase& bench_case, const BenchOptions& options)
      : ModelWorkload(bench_case, options),
        optimizer_(make_optimizer(named_tensors(*model_), options.optimizer)),
        scaler_(options.compute == at::kHalf),
        lr_(options.optimizer.lr),
        update_(causal_loss, *model_, *optimizer_, scaler_, dist::alone(),
                {.compute = options.compute,
                 .activation_checkpointing = options.activation_checkpointing,
                 .clip_norm = kBenchClipNorm}),
        batches_{{.samples = batch_,
                  .count = batch_ * length_,
                  .tensors = {{"inputs", random_tokens(length_).cpu()},
                              {"targets", random_tokens(length_).cpu()}}}} {}

  // As training does: an update that overflows in half precision is left out.
  void step() override {
    const auto measured = update_.measure(batches_, state_.step++);
    if (update_.judge(*measured, {}, state_).fate == UpdateFate::applied) {
      update_.apply(*measured, lr_);
    }
  }
  [[nodiscard]] std::int64_t tokens_per_step() const override { return batch_ * length_; }
  [[nodiscard]] double flops_per_step_token() const override { return flops().train(); }

 private:
  std::unique_ptr<Optimizer> optimizer_;
  LossScaler scaler_;
  double lr_;
  UpdateStep update_;
  TrainingState state_;
  std::vector<Batch> batches_;
};

class InferWorkload final : public ModelWorkload {
 public:
  InferWorkload(const BenchCase& bench_case, const BenchOptions& options)
      : ModelWorkload(bench_case, options),
        inputs_(random_tokens(length_)),
        targets_(random_tokens(length_).flatten()) {}

  void step() override {
    const at::NoGradGuard no_grad;
    const at::Tensor hidden = model_->forward(inputs_, context_).flatten(0, 1);
    losses_ = ops::token_losses(hidden, model_->output_layer(), targets_, loss_options());
  }
  [[nodiscard]] std::int64_t tokens_per_step() const override { return batch_ * length_; }
  [[nodiscard]] double flops_per_step_token() const override { return flops().forward(); }

 private:
  at::Tensor inputs_;
  at::Tensor targets_;
  at::Tensor losses_;
};

}  // namespace

void require_memory(const BenchCase& bench_case, const BenchOptions& options) {
  const double needed = least_memory(bench_case, options, bench_size(bench_case, options));
  const double there = ops::device_memory_bytes(options.device);
  if (needed > there) {
    throw UserError(bench_case.attention + " with a batch of " +
                    format_count(bench_case.batch_size) + " sequences of " +
                    format_count(bench_case.length) + " tokens takes at least " +
                    format_bytes(needed) + ", the device has " + format_bytes(there) +
                    "; choose a smaller --batch-size, --lengths or model");
  }
}

std::unique_ptr<Workload> make_workload(const BenchCase& bench_case, const BenchOptions& options) {
  switch (options.mode) {
    case BenchMode::train:
      return std::make_unique<TrainWorkload>(bench_case, options);
    case BenchMode::infer:
      return std::make_unique<InferWorkload>(bench_case, options);
    case BenchMode::decode:
      return make_decode_workload(bench_case, options, bench_size(bench_case, options));
  }
  return nullptr;
}

}  // namespace transnormer
