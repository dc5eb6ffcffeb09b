#include "train/training_memory.h"

#include <algorithm>
#include <string>

#include "model/graphed_pass.h"
#include "ops/runtime/device.h"
#include "ops/runtime/device_memory.h"
#include "optim/registry.h"
#include "task/batch_loader.h"
#include "util/error.h"
#include "util/memory.h"
#include "util/units.h"

namespace transnormer {

TrainingMemory::TrainingMemory(const Config& config, const TrainingShape& shape, at::Device device,
                               const dist::World& world)
    : config_(config), world_(world), device_(device), shape_(shape) {}

TrainingMemory::Needs TrainingMemory::needs(std::int64_t micro_batch_size) const {
  Needs needs;
  needs.estimate =
      training_memory(config_.model, shape_.size, optimizer_shape(config_.optimizer),
                      {.sequences = micro_batch_size,
                       .length = shape_.length / world_.sequence().size(),
                       .compute = ops::scalar_type(config_.train.precision),
                       .activation_checkpointing = config_.train.activation_checkpointing});
  if (config_.distributed.shard_optimizer) {
    needs.gathered = world_.is_first() ? needs.estimate.optimizer : 0;
    needs.estimate.optimizer /= world_.size();
  }
  needs.batches = BatchLoader::held_bytes({.global_batch_size = config_.train.global_batch_size,
                                           .micro_batch_size = micro_batch_size,
                                           .shares = world_.samples().size(),
                                           .equal_rows = GraphedPass::possible(device_)},
                                          shape_.bytes_per_sample);
  return needs;
}

bool TrainingMemory::require(std::int64_t micro_batch_size) const {
  require_memory_for_training(config_.model, shape_.size, optimizer_shape(config_.optimizer),
                              device_);
  const auto [estimate, batches, gathered] = needs(micro_batch_size);
  const double needed = estimate.total() - 0.3 * estimate.activations + gathered;
  const int here = world_.launch().local_size;
  const std::string of_one = here == 1 ? "" : " for each of " + format_count(here) + " processes";
  const double machine = ops::device_memory_bytes(at::kCPU) / here;
  const bool shared = device_.is_cpu();  // the memory of batches and model is the same
  const double beside = shared ? needed : 0;
  if (batches + beside > machine && (batches > estimate.activations || !shared)) {
    throw UserError("train.global_batch_size: " + format_count(config_.train.global_batch_size) +
                    " samples of " + format_count(shape_.length) + " tokens would take about " +
                    format_bytes(batches) + " for the tokens of the updates held ready, " +
                    format_bytes(batches + beside) + " in all, the machine has " +
                    format_bytes(machine) + of_one + "; set a smaller global_batch_size");
  }
  const double there = ops::device_memory_bytes(device_) / (shared ? here : 1);
  if (needed + (shared ? batches : 0) > there) {
    throw UserError("train.micro_batch_size: " + format_count(micro_batch_size) + " sequences of " +
                    format_count(shape_.length) + " tokens would take about " +
                    format_bytes(estimate.total()) + ", " + device_.str() + " has " +
                    format_bytes(there) + of_one +
                    "; set a smaller micro_batch_size (the result stays the same)");
  }
  return (shared ? estimate.total() : 0) + batches + estimate.snapshot <= machine;
}

bool TrainingMemory::fits(std::int64_t micro_batch_size, double activations, double share) const {
  const auto [estimate, batches, gathered] = needs(micro_batch_size);
  const double needed = estimate.total() + (activations - 1) * estimate.activations + gathered;
  if (!device_.is_cpu()) {
    return needed <= share * ops::device_memory_bytes(device_);
  }
  const double free = static_cast<double>(std::min(machine_memory_bytes(), free_memory_bytes()));
  return needed + batches <= share * free / world_.launch().local_size;
}

}  // namespace transnormer
