// AdamW: decoupled decay (p -= lr * wd * p), eps added after bias correction, as in PyTorch.
// Loshchilov and Hutter 2019.
#include "optim/adamw.h"

#include <ATen/ATen.h>

#include "optim/registry.h"

namespace transnormer {
namespace {

class AdamW final : public Optimizer {
 public:
  AdamW(const std::vector<NamedTensor>& tensors, const AdamWConfig& settings)
      : Optimizer(tensors, adamw_slots()), settings_(settings) {}

 private:
  void apply(const OptimizerUpdate& update) override { apply_adamw(update, settings_); }

  AdamWConfig settings_;
};

}  // namespace

std::vector<StateSlot> adamw_slots() {
  return {{"exp_avg"}, {"exp_avg_sq"}};
}

// One fused kernel.
void apply_adamw(const OptimizerUpdate& update, const AdamWConfig& settings) {
  const auto [beta1, beta2] = settings.betas;
  const at::Tensor number =
      at::full({}, static_cast<double>(update.number), update.values.options());
  at::_fused_adamw_(update.values, update.gradients, update.state[0], update.state[1],
                    /*max_exp_avg_sqs=*/{}, number, update.lr, beta1, beta2, update.weight_decay,
                    settings.eps, /*amsgrad=*/false, /*maximize=*/false);
}

void AdamWConfig::visit(FieldVisitor& visitor) {
  visitor.number_pair(
      {"betas", "Decay of the running means of gradient and square", OnResume::warn}, betas,
      kProbability);
  visitor.number(
      {"eps", "Added to the root of the second moment, after bias correction", OnResume::warn}, eps,
      {.min = 0, .max = 1, .min_open = true});
}

std::unique_ptr<Optimizer> AdamWConfig::make(const std::vector<NamedTensor>& tensors,
                                             const OptimizerConfig&) const {
  return std::make_unique<AdamW>(tensors, *this);
}

namespace {
[[maybe_unused]] const bool kAdded = add_optimizer<AdamWConfig>();
}  // namespace

}  // namespace transnormer
