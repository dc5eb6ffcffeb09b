#include "train/passes.h"

#include "model/training_pass.h"

namespace transnormer {
namespace {

// [samples, length] on the device. A CPU model reads the batch's own memory, which must outlive the
// backward pass; for a GPU the copy runs beside the computation, from pinned memory.
at::Tensor on_device(const std::vector<std::int64_t>& values, const Batch& batch,
                     at::Device device) {
  const at::Tensor view =
      at::from_blob(const_cast<std::int64_t*>(values.data()), {batch.samples, batch.length},
                    at::TensorOptions().dtype(at::kLong));
  return device.is_cpu() ? view : view.pin_memory().to(device, /*non_blocking=*/true);
}

// The summed loss of one micro-batch, its gradients added.
at::Tensor run_micro_batch(TransNormer& model, const Batch& batch, const PassOptions& options,
                           double scale) {
  ForwardContext context;
  context.compute = options.compute;
  context.training = true;
  context.activation_checkpointing = options.activation_checkpointing;
  context.seed = options.seed;
  context.update = options.update;
  context.first_sample = batch.first_position;
  context.should_stop = options.should_stop ? &options.should_stop : nullptr;

  const at::Device device = model.device();
  const at::Tensor inputs = on_device(batch.inputs, batch, device);
  const at::Tensor targets = on_device(batch.targets, batch, device);
  return options.recorded != nullptr ? options.recorded->run(inputs, targets, context, scale)
                                     : training_pass(model, inputs, targets, context, scale);
}

}  // namespace

std::int64_t target_tokens(const std::vector<Batch>& batches) {
  std::int64_t sum = 0;
  for (const Batch& batch : batches) {
    sum += batch.target_tokens;
  }
  return sum;
}

std::optional<at::Tensor> accumulate_gradients(TransNormer& model,
                                               const std::vector<Batch>& batches,
                                               const PassOptions& options) {
  const double scale = options.loss_scale / static_cast<double>(target_tokens(batches));
  at::Tensor nll = at::zeros({}, at::TensorOptions().dtype(at::kDouble).device(model.device()));
  try {
    for (const Batch& batch : batches) {
      if (options.should_stop && options.should_stop()) {
        return std::nullopt;
      }
      nll += run_micro_batch(model, batch, options, scale);
    }
  } catch (const ops::PassStopped&) {
    return std::nullopt;
  }
  return nll;
}

}  // namespace transnormer
