#include "model/training_pass.h"

#include "ops/loss/linear_cross_entropy.h"

namespace transnormer {

at::Tensor training_pass(TransNormer& model, const at::Tensor& inputs, const at::Tensor& targets,
                         const ForwardContext& context, double scale) {
  const at::Tensor hidden = model.forward(inputs, context).flatten(0, 1);
  const ops::CrossEntropy result = ops::linear_cross_entropy(
      hidden, model.output_weight(), targets.flatten(),
      {.compute = context.compute, .scale = scale, .should_stop = context.should_stop});
  result.loss.backward();
  return result.nll;
}

}  // namespace transnormer
