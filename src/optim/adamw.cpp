// AdamW: decoupled decay (p -= lr * wd * p), eps added after bias correction, as in PyTorch.
// Loshchilov and Hutter 2019.
#include "optim/adamw.h"

#include <ATen/ATen.h>

#include "optim/registry.h"

namespace transnormer {
namespace {

// One fused kernel a buffer.
class AdamW final : public Optimizer {
 public:
  AdamW(const std::vector<NamedTensor>& tensors, const AdamWConfig& settings, double weight_decay)
      : Optimizer(tensors, {{"exp_avg"}, {"exp_avg_sq"}}),
        settings_(settings),
        weight_decay_(weight_decay) {}

 private:
  void apply(const OptimizerUpdate& update) override {
    const auto [beta1, beta2] = settings_.betas;
    const at::Tensor number =
        at::full({}, static_cast<double>(update.number), update.values.options());
    at::_fused_adamw_(update.values, update.gradients, update.state[0], update.state[1],
                      /*max_exp_avg_sqs=*/{}, number, update.lr, beta1, beta2, weight_decay_,
                      settings_.eps, /*amsgrad=*/false, /*maximize=*/false);
  }

  AdamWConfig settings_;
  double weight_decay_;
};

}  // namespace

void AdamWConfig::visit(FieldVisitor& visitor) {
  visitor.number_pair(
      {"betas", "Decay of the running means of gradient and square", OnResume::warn}, betas,
      kProbability);
  visitor.number(
      {"eps", "Added to the root of the second moment, after bias correction", OnResume::warn}, eps,
      {.min = 0, .max = 1, .min_open = true});
}

std::unique_ptr<Optimizer> AdamWConfig::make(const std::vector<NamedTensor>& tensors,
                                             const OptimizerConfig& config) const {
  return std::make_unique<AdamW>(tensors, *this, config.weight_decay);
}

namespace {
[[maybe_unused]] const bool kAdded = add_optimizer<AdamWConfig>();
}  // namespace

}  // namespace transnormer
