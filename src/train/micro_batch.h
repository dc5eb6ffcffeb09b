// How many sequences a rank passes through the model at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "config/config.h"
#include "dist/world.h"
#include "train/training_memory.h"

namespace transnormer {

struct TrainingRun;

// Of a rank's share of an update, cut into as few passes as may be: the share, half of it, a third,
// .. rounded up, the first that `fits`; 1 where none does.
[[nodiscard]] std::int64_t largest_that_fits(std::int64_t share,
                                             const std::function<bool(std::int64_t)>& fits);

struct MicroBatch {
  static constexpr const char* kAsBefore = "as before";
  std::int64_t size = 1;
  std::string origin;  // for people, where train.micro_batch_size is -1: "by estimate"
};

// What the config says; for -1 `saved`, the choice of an earlier start that passed as much a
// sequence, unless it is 0 or can no longer fit; else by estimate, the same on all ranks: what fits
// with some room, or, on a GPU that is to be tried, what may fit.
[[nodiscard]] MicroBatch choose_micro_batch(const Config& config, const TrainingMemory& memory,
                                            at::Device device, const dist::World& world,
                                            std::int64_t saved);

// What a process that trains alone would choose by estimate.
[[nodiscard]] std::int64_t expected_micro_batch(const Config& config, const ModelSize& size,
                                                at::Device device);

// On a GPU: makes it as small as a forward and backward pass needs to have room. Leaves no trace
// but in the gradients, which each update makes anew. Ranks that share sequences stay with the
// estimate.
void try_micro_batch(TrainingRun& run);

}  // namespace transnormer
