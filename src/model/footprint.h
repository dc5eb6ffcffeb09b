// The memory that a model takes, from its config alone.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "config/config.h"
#include "model/transnormer.h"

namespace transnormer {

// Numbers in all parameters and frozen vectors of tables and layers: all but the gains of the norms
// before and after the layers. In double, so that absurd sizes do not wrap around; infinite where
// they are beyond that.
[[nodiscard]] double estimate_parameters(const ModelConfig& config, const ModelSize& size);

// Bytes of training. Activations are what the backward pass keeps of one micro-batch, to some 30 %.
struct MemoryEstimate {
  double weights = 0;  // with their copies in half precision
  double gradients = 0;
  double optimizer = 0;
  double average = 0;  // of the weights
  double activations = 0;
  // Of weights, optimizer and average, while a copy of them is saved; in the machine's memory,
  // beside what the total counts.
  double snapshot = 0;
  [[nodiscard]] double total() const {
    return weights + gradients + optimizer + average + activations;
  }
};

struct PassShape {
  std::int64_t sequences = 1;  // of a micro-batch
  std::int64_t length = 1;     // tokens a sequence
  at::ScalarType compute = at::kFloat;
  bool activation_checkpointing = false;
};

// What training keeps for each parameter beside weight and gradient, in fp32 numbers.
struct OptimizerShape {
  std::int64_t state_slots = 0;                   // of the optimizer
  std::optional<std::int64_t> matrix_slots = {};  // of hidden matrices, where that is another
  bool averages = false;                          // a running mean of the weights
};

[[nodiscard]] MemoryEstimate training_memory(const ModelConfig& config, const ModelSize& size,
                                             const OptimizerShape& optimizer,
                                             const PassShape& pass);

// Throw UserError, with the memory that it would take, where the device has less: for the weights
// alone (reading a checkpoint), or for weights, gradients and optimizer.
void require_memory_for_weights(const ModelConfig& config, const ModelSize& size,
                                at::Device device);
void require_memory_for_training(const ModelConfig& config, const ModelSize& size,
                                 const OptimizerShape& optimizer, at::Device device);

}  // namespace transnormer
