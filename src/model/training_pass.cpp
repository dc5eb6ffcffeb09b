#include "model/training_pass.h"

#include "ops/linear_cross_entropy.h"

namespace transnormer {
namespace {

// A GPU has more memory and wants larger products than a CPU.
constexpr std::int64_t kSliceBytesOnGpu = 2LL << 30;

}  // namespace

at::Tensor training_pass(TransNormer& model, const at::Tensor& inputs, const at::Tensor& targets,
                         const ForwardContext& context, double scale) {
  const at::Tensor hidden = model.forward(inputs, context).flatten(0, 1);
  ops::LinearCrossEntropyOptions options;
  options.compute = context.compute;
  options.scale = scale;
  if (inputs.is_cuda()) {
    options.memory_bytes = kSliceBytesOnGpu;
  }
  const ops::CrossEntropy result =
      ops::linear_cross_entropy(hidden, model.output_weight(), targets.flatten(), options);
  result.loss.backward();
  return result.nll;
}

}  // namespace transnormer
