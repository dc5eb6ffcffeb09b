// Forward and backward over the micro-batches of one update; the same code on CPU and CUDA.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "data/batches.h"
#include "model/graphed_pass.h"
#include "model/transnormer.h"

namespace transnormer {

// Targets of the update that are not masked: what its summed loss is divided by.
[[nodiscard]] std::int64_t target_tokens(const std::vector<Batch>& batches);

struct PassOptions {
  at::ScalarType compute = at::kFloat;
  bool activation_checkpointing = false;
  std::uint64_t seed = 0;
  std::int64_t update = 0;
  double loss_scale = 1;
  std::function<bool()> should_stop = {};  // asked before each micro-batch, and on the way
  GraphedPass* recorded = nullptr;         // the model's, kept between updates, makes them faster
};

// Adds the gradients of one update to the parameters': loss_scale times the loss summed over all
// micro-batches and divided once by the update's target tokens, so that k micro-batches of b give
// what one of k·b gives. Returns the summed loss in nats, an fp64 scalar on the device, without
// waiting for it; nothing where should_stop said so, the gradients are then a part only.
[[nodiscard]] std::optional<at::Tensor> accumulate_gradients(TransNormer& model,
                                                             const std::vector<Batch>& batches,
                                                             const PassOptions& options);

}  // namespace transnormer
