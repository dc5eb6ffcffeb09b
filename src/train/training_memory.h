// Whether a training fits into the memory, by estimate.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "config/config.h"
#include "dist/world.h"
#include "model/footprint.h"
#include "model/model_size.h"

namespace transnormer {

// What is trained on, as far as memory goes.
struct TrainingShape {
  ModelSize size;
  std::int64_t length = 1;      // of a sample, in tokens
  double bytes_per_sample = 0;  // in a batch
};

// Weights and optimizer are surely needed; of the rest the estimate is good to some 30 %. Processes
// on one machine share its memory. What is passed must outlive this.
class TrainingMemory {
 public:
  TrainingMemory(const Config& config, const TrainingShape& shape, at::Device device,
                 const dist::World& world);

  // Throws UserError where passes of so many sequences surely do not fit. Returns whether there is
  // room for a copy of weights and optimizer, too.
  [[nodiscard]] bool require(std::int64_t micro_batch_size) const;

  // Whether they fit into `share` of the memory that is free now, were the activations so many
  // times those of the estimate.
  [[nodiscard]] bool fits(std::int64_t micro_batch_size, double activations, double share) const;

 private:
  struct Needs {
    MemoryEstimate estimate;
    double batches = 0;   // of the updates held ready, in the machine's memory
    double gathered = 0;  // what is spread, for saving it
  };
  [[nodiscard]] Needs needs(std::int64_t micro_batch_size) const;

  const Config& config_;
  const dist::World& world_;
  at::Device device_;
  TrainingShape shape_;
};

}  // namespace transnormer
