#include "model/footprint.h"

#include <ATen/ATen.h>
#include <ATen/DeviceAccelerator.h>

#include <string>

#include "util/error.h"
#include "util/memory.h"
#include "util/units.h"

namespace transnormer {
namespace {

constexpr double kWeightBytes = 4;     // fp32
constexpr double kTrainingBytes = 16;  // weight, gradient, two moments
// Above this LibTorch cannot even describe the tensors.
constexpr double kDescribableBytes = 0x1p62;
// Above this the description alone takes minutes and gigabytes.
constexpr std::int64_t kMostLayers = 100000;

void require_memory(const ModelConfig& config, const ModelSize& size, at::Device device,
                    double bytes_each, const char* purpose) {
  const double parameters = estimate_parameters(config, size);
  const double bytes = bytes_each * parameters;
  const double there = device_memory_bytes(device);
  if (config.layers > kMostLayers) {
    throw UserError("model.layers: expected at most " + format_count(kMostLayers) + ", got " +
                    format_count(config.layers) + "; " + purpose + " would take " +
                    format_bytes(bytes));
  }
  if (bytes > there) {
    throw UserError("model: " + std::string(purpose) + " of " + format_short(parameters) +
                    " parameters would take " + format_bytes(bytes) + ", " +
                    (device.is_meta() ? "more than any machine has"
                                      : device.str() + " has " + format_bytes(there)) +
                    "; lower model.dim, model.layers or model.vocab_size");
  }
}

}  // namespace

double estimate_parameters(const ModelConfig& config, const ModelSize& size) {
  const auto dim = static_cast<double>(config.dim);
  const auto width = config.ffn_dim > 0 ? static_cast<double>(config.ffn_dim)
                                        : dim * (config.ffn == FfnKind::glu ? 8.0 / 3 : 4.0);
  const double attention = 4 * (dim * dim + dim);
  const double ffn = config.ffn == FfnKind::glu ? 3 * dim * width + 2 * width + dim
                                                : 2 * dim * width + width + dim;
  const double tables =
      static_cast<double>(size.vocab_size) * (config.tie_embeddings ? 1 : 2) +
      (config.position == PositionKind::learned ? static_cast<double>(size.max_positions) : 0);
  return tables * dim + static_cast<double>(config.layers) * (attention + ffn);
}

MemoryEstimate training_memory(const ModelConfig& config, const ModelSize& size,
                               const PassShape& pass) {
  const double parameters = estimate_parameters(config, size);
  const auto dim = static_cast<double>(config.dim);
  const auto width = static_cast<double>(config.resolved_ffn_dim());
  const auto element = static_cast<double>(c10::elementSize(pass.compute));
  const auto tokens = static_cast<double>(pass.sequences) * static_cast<double>(pass.length);
  // Per token: the residual stream before both parts; the normed inputs, q, k, v, the attention's
  // sums and their norm; what the feed-forward products give out before the last one.
  const double stream = 2 * 4 * dim;
  const double attention = element * 6 * dim;
  const double ffn = element * (dim + 2 * width);
  const double layer = stream + attention + ffn;
  const auto layers = static_cast<double>(config.layers);
  const double copies = pass.compute == at::kFloat ? 0 : element;  // of the weights, for products
  return {.weights = (4 + copies) * parameters,
          .gradients = 4 * parameters,
          .optimizer = 8 * parameters,
          .activations =
              tokens * (pass.activation_checkpointing ? layers * 4 * dim + layer : layers * layer)};
}

double device_memory_bytes(at::Device device) {
  if (device.is_meta()) {
    return kDescribableBytes;
  }
  if (device.is_cpu()) {
    return static_cast<double>(machine_memory_bytes());
  }
  const auto index = device.has_index() ? device.index() : c10::DeviceIndex{0};
  return static_cast<double>(at::accelerator::getMemoryInfo(index).second);
}

void require_memory_for_weights(const ModelConfig& config, const ModelSize& size,
                                at::Device device) {
  require_memory(config, size, device, kWeightBytes, "the weights");
}

void require_memory_for_training(const ModelConfig& config, const ModelSize& size,
                                 at::Device device) {
  require_memory(config, size, device, kTrainingBytes, "training");
}

}  // namespace transnormer
