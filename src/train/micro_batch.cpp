#include "train/micro_batch.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <exception>
#include <numeric>
#include <vector>

#include "ops/runtime/device.h"
#include "ops/runtime/device_memory.h"
#include "ops/runtime/out_of_memory.h"
#include "train/training_run.h"
#include "train/update_step.h"
#include "util/signal.h"
#include "util/units.h"

namespace transnormer {
namespace {

std::int64_t share_of(const Config& config, const dist::World& world) {
  return config.train.global_batch_size / world.samples().size();
}

// The estimate is good to some 30 %; other processes want to live, too.
bool surely_fits(const TrainingMemory& memory, std::int64_t size) {
  return memory.fits(size, /*activations=*/1.3, /*share=*/0.8);
}
bool may_fit(const TrainingMemory& memory, std::int64_t size) {
  return memory.fits(size, /*activations=*/0.5, /*share=*/1);
}

std::int64_t least_of_all(const dist::World& world, std::int64_t size) {
  for (const std::string& other : world.all().gather(std::to_string(size))) {
    size = std::min(size, static_cast<std::int64_t>(std::stoll(other)));
  }
  return size;
}

// One pass as training makes them, with what an update and validation may want beside it left free.
// Throws what the library throws where there is no room.
void make_pass(TrainingRun& run, std::int64_t sequences) {
  const double spare = 0.04 * ops::device_memory_bytes(run.device);
  const at::Tensor reserve =
      at::empty({static_cast<std::int64_t>(spare)}, at::device(run.device).dtype(at::kByte));
  std::vector<std::int64_t> samples(static_cast<std::size_t>(sequences));
  std::iota(samples.begin(), samples.end(), 0);
  for (std::int64_t& sample : samples) {
    sample %= run.task->samples();
  }
  const Batch batch = run.task->make_batch(samples, 0, sequences);
  LossScaler scaler(run.config.train.precision == Precision::fp16);
  UpdateStep step(
      [&run](TransNormer& model, const Tensors& tensors, const ForwardContext& context,
             const at::Tensor& scale) { return run.task->loss(model, tensors, context, scale); },
      *run.model, *run.optimizer, scaler, dist::alone(),
      {.compute = ops::scalar_type(run.config.train.precision),
       .activation_checkpointing = run.config.train.activation_checkpointing,
       .seed = static_cast<std::uint64_t>(run.config.train.seed),
       .captures = false});
  (void)step.measure({batch}, run.state.step);
}

bool has_room(TrainingRun& run, std::int64_t sequences) {
  throw_if_stopped();
  const ops::PeakMemory released(run.device);  // what is free goes back before
  try {
    make_pass(run, sequences);
    return true;
  } catch (const std::exception& error) {
    if (!ops::is_out_of_memory(error)) {
      throw;
    }
    return false;
  }
}

}  // namespace

std::int64_t largest_that_fits(std::int64_t share, const std::function<bool(std::int64_t)>& fits) {
  // Many passes more make each but little smaller: then more are added at once.
  for (std::int64_t passes = 1; passes < share; passes += std::max<std::int64_t>(passes / 8, 1)) {
    const std::int64_t size = (share + passes - 1) / passes;
    if (fits(size)) {
      return size;
    }
  }
  return 1;
}

MicroBatch choose_micro_batch(const Config& config, const TrainingMemory& memory, at::Device device,
                              const dist::World& world, std::int64_t saved) {
  const std::int64_t share = share_of(config, world);
  if (config.train.micro_batch_size >= 0) {
    return {.size = config.train.micro_batch_size > 0 ? config.train.micro_batch_size : share,
            .origin = ""};
  }
  if (saved > 0 && saved <= share &&
      least_of_all(world, memory.fits(saved, /*activations=*/0.7, /*share=*/1) ? 1 : 0) == 1) {
    return {.size = saved, .origin = MicroBatch::kAsBefore};
  }
  const std::int64_t size = largest_that_fits(share, [&](std::int64_t candidate) {
    const bool is_tried = !device.is_cpu() && world.sequence().size() == 1;
    return is_tried ? may_fit(memory, candidate) : surely_fits(memory, candidate);
  });
  return {.size = least_of_all(world, size), .origin = "by estimate"};
}

std::int64_t expected_micro_batch(const Config& config, const ModelSize& size, at::Device device) {
  const TrainingShape shape{.size = size, .length = config.data.tokens_per_sample};
  const TrainingMemory memory(config, shape, device, dist::alone());
  return choose_micro_batch(config, memory, device, dist::alone(), /*saved=*/0).size;
}

void try_micro_batch(TrainingRun& run) {
  if (run.world.sequence().size() > 1) {
    return;
  }
  const std::int64_t most = run.micro_batch.size;
  const std::int64_t size = largest_that_fits(share_of(run.config, run.world), [&](auto candidate) {
    return candidate <= most && has_room(run, candidate);
  });
  run.optimizer->zero_gradients();
  run.micro_batch = {.size = least_of_all(run.world, size), .origin = "by trial"};
}

}  // namespace transnormer
