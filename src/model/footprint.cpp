#include "model/footprint.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>

#include "model/attention/registry.h"
#include "model/block.h"
#include "model/weights.h"
#include "ops/runtime/device_memory.h"
#include "util/error.h"
#include "util/units.h"

namespace transnormer {
namespace {

constexpr double kWeightBytes = 4;  // fp32
// Above this the description alone takes minutes and gigabytes.
constexpr std::int64_t kMostLayers = 100000;

double frozen_in(const Block& block) {
  double sum = 0;
  for (const at::Tensor& buffer : block.buffers()) {
    sum += static_cast<double>(buffer.numel());
  }
  return sum;
}

// Parameters and what is frozen.
double numbers_in(const Block& block) {
  double sum = frozen_in(block);
  for (const at::Tensor& parameter : block.parameters()) {
    sum += static_cast<double>(parameter.numel());
  }
  return sum;
}

double hidden_matrices_in(const Block& block) {
  double sum = 0;
  for (const auto& item : block.named_parameters()) {
    const bool is_matrix = is_hidden_matrix({"layers.0." + item.key(), item.value()});
    sum += is_matrix ? static_cast<double>(item.value().numel()) : 0;
  }
  return sum;
}

// From one layer of each kind, made without memory; infinite where LibTorch cannot even describe
// it.
double sum_over_layers(const ModelConfig& config, const ModelSize& size,
                       const std::function<double(const Block&)>& figure) {
  const std::int64_t early = config.resolved_early_layers();
  const auto of_kind = [&](std::int64_t index, std::int64_t count) {
    return count == 0
               ? 0
               : static_cast<double>(count) * figure(*make_layer(config, size, index, at::kMeta));
  };
  try {
    return of_kind(0, early) + of_kind(early, config.layers - early);
  } catch (const c10::Error&) {  // sizes that overflow
    return std::numeric_limits<double>::infinity();
  }
}

void require_memory(const ModelConfig& config, const ModelSize& size, at::Device device,
                    double bytes_each, const char* purpose) {
  const double parameters = estimate_parameters(config, size);
  const double bytes = bytes_each * parameters;
  const double there = ops::device_memory_bytes(device);
  if (config.layers > kMostLayers) {
    throw UserError("model.layers: expected at most " + format_count(kMostLayers) + ", got " +
                    format_count(config.layers) + "; " + purpose + " would take " +
                    format_bytes(bytes));
  }
  if (!std::isfinite(bytes)) {
    throw UserError("model: " + std::string(purpose) +
                    " would take more than any machine has; lower model.dim or model.ffn_dim");
  }
  if (bytes > there) {
    throw UserError("model: " + std::string(purpose) + " of " + format_short(parameters) +
                    " parameters would take " + format_bytes(bytes) + ", " +
                    (device.is_meta() ? "more than any machine has"
                                      : device.str() + " has " + format_bytes(there)) +
                    "; lower model.dim, model.layers or model.vocab_size");
  }
}

// Numbers of the optimizer's state. `parameters`: of all trained.
double state_numbers(const ModelConfig& config, const ModelSize& size,
                     const OptimizerShape& optimizer, double parameters) {
  const auto slots = static_cast<double>(optimizer.state_slots);
  if (!optimizer.matrix_slots) {
    return slots * parameters;
  }
  const auto matrix_slots = static_cast<double>(*optimizer.matrix_slots);
  return slots * parameters +
         (matrix_slots - slots) * sum_over_layers(config, size, hidden_matrices_in);
}

}  // namespace

double estimate_parameters(const ModelConfig& config, const ModelSize& size) {
  const auto dim = static_cast<double>(config.dim);
  const double biases = config.output_bias ? static_cast<double>(size.vocab_size) : 0;
  const double tables =
      static_cast<double>(size.vocab_size) * (config.tie_embeddings ? 1 : 2) +
      (config.position == PositionKind::learned ? static_cast<double>(size.max_positions) : 0);
  return tables * dim + biases +
         sum_over_layers(config, size, [](const Block& block) { return numbers_in(block); });
}

MemoryEstimate training_memory(const ModelConfig& config, const ModelSize& size,
                               const OptimizerShape& optimizer, const PassShape& pass) {
  const double numbers = estimate_parameters(config, size);
  const double parameters = numbers - sum_over_layers(config, size, frozen_in);
  const auto element = static_cast<double>(c10::elementSize(pass.compute));
  const auto tokens = static_cast<double>(pass.sequences) * static_cast<double>(pass.length);
  const auto layers = static_cast<double>(config.layers);
  const double kept = sum_over_layers(
      config, size, [&](const Block& block) { return block.kept_bytes_per_token(pass.compute); });
  // Recomputed layers keep the stream before each, and one layer at a time all of its own.
  const double stream = layers * 4 * static_cast<double>(config.dim);
  const double state = 4 * state_numbers(config, size, optimizer, parameters);
  const double average = optimizer.averages ? 4 * parameters : 0;
  const double copies = pass.compute == at::kFloat ? 0 : element;  // of the weights, for products
  return {.weights = 4 * numbers + copies * parameters,
          .gradients = 4 * parameters,
          .optimizer = state,
          .average = average,
          .activations = tokens * (pass.activation_checkpointing ? stream + kept / layers : kept),
          .snapshot = 4 * numbers + state + average};
}

void require_memory_for_weights(const ModelConfig& config, const ModelSize& size,
                                at::Device device) {
  require_memory(config, size, device, kWeightBytes, "the weights");
}

void require_memory_for_training(const ModelConfig& config, const ModelSize& size,
                                 const OptimizerShape& optimizer, at::Device device) {
  const std::int64_t slots =
      std::min(optimizer.state_slots, optimizer.matrix_slots.value_or(optimizer.state_slots));
  // With weight and gradient.
  const double numbers = 2 + static_cast<double>(slots) + (optimizer.averages ? 1 : 0);
  require_memory(config, size, device, kWeightBytes * numbers, "training");
}

}  // namespace transnormer
