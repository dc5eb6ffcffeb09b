// One update of a model: forward and backward over its micro-batches, loss, norms, judgement,
// clipping, optimizer. What training repeats and what `bench` times; the same code on CPU and CUDA.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "dist/world.h"
#include "model/graphed_pass.h"
#include "model/transnormer.h"
#include "optim/loss_scaler.h"
#include "optim/optimizer.h"
#include "task/task.h"
#include "train/gradient_reduction.h"
#include "train/nonfinite.h"

namespace transnormer {

// As Task::loss.
using LossFunction = std::function<Loss(TransNormer& model, const Tensors& batch,
                                        const ForwardContext& context, const at::Tensor& scale)>;

class UpdateStep {
 public:
  struct Options {
    at::ScalarType compute = at::kFloat;
    bool activation_checkpointing = false;
    std::uint64_t seed = 0;
    double clip_norm = 0;
    bool captures = true;  // passes in a CUDA graph, on a GPU
    DistributedConfig distributed = {};
  };
  // All must outlive the step. In a world of several the processes make each update together, each
  // from its own batches.
  UpdateStep(LossFunction loss, TransNormer& model, Optimizer& optimizer, LossScaler& scaler,
             const dist::World& world, const Options& options);

  // What an update found; the gradients themselves are with the parameters.
  struct Measured {
    Sums sums;
    double grad_norm = 0;             // before clipping
    at::Tensor norms;                 // of each gradient, fp64
    std::vector<double> wishes = {};  // summed over the processes
  };

  // Makes the gradients of update number `update`: of the loss summed over all micro-batches of all
  // processes and divided once by what they count, so that k micro-batches of b give what one of
  // k·b gives. Waits for the device once. `wishes` are asked for when the passes are made. Nothing
  // where should_stop, asked before each micro-batch and on the way, said so; the gradients are
  // then a part only, weights and optimizer as before. Only asked in a world of one.
  [[nodiscard]] std::optional<Measured> measure(
      const std::vector<Batch>& batches, std::int64_t update,
      const std::function<bool()>& should_stop = {},
      const std::function<std::vector<double>()>& wishes = {});

  // Whether the update is to be applied; keeps the loss scale and the counts in `state`.
  [[nodiscard]] Verdict judge(const Measured& measured, const TrainConfig& policy,
                              TrainingState& state);

  // For who looks at the gradients: all of them everywhere, though each process needs a part.
  void make_gradients_whole() const { reduction_.make_whole(); }

  // Clips the gradients and lets the optimizer go one step.
  void apply(const Measured& measured, double lr);

  // Why passes do not go by a CUDA graph though there is a GPU, or nothing; measure() warns of it,
  // once.
  [[nodiscard]] const std::string& graph_fault() const { return pass_.fault(); }

 private:
  [[nodiscard]] at::Tensor run_micro_batch(const Batch& batch, ForwardContext context,
                                           const at::Tensor& scale);
  void warn_of_graph();
  // What is found when the gradients are made.
  [[nodiscard]] Measured alone(Measured measured, const at::Tensor& sums) const;
  [[nodiscard]] Measured in_several(Measured measured, const at::Tensor& sums) const;

  TransNormer& model_;
  Optimizer& optimizer_;
  LossScaler& scaler_;
  Options options_;
  const dist::World& world_;
  GradientReduction reduction_;
  GraphedPass pass_;
  bool told_fault_ = false;
};

}  // namespace transnormer
