// AdamW: decoupled decay (p -= lr * wd * p), eps added after bias correction, as in PyTorch.
// Loshchilov and Hutter 2019.
#include <ATen/ATen.h>

#include "optim/registry.h"

namespace transnormer {
namespace {

// One fused kernel a buffer.
class AdamW final : public Optimizer {
 public:
  AdamW(const std::vector<NamedTensor>& tensors, const OptimizerConfig& config)
      : Optimizer(tensors, {{"exp_avg"}, {"exp_avg_sq"}}), config_(config) {}

 private:
  void apply(const OptimizerUpdate& update) override {
    const at::Tensor number =
        at::full({}, static_cast<double>(update.number), update.values.options());
    at::_fused_adamw_(update.values, update.gradients, update.state[0], update.state[1],
                      /*max_exp_avg_sqs=*/{}, number, update.lr, config_.betas[0], config_.betas[1],
                      config_.weight_decay, config_.eps, /*amsgrad=*/false,
                      /*maximize=*/false);
  }

  OptimizerConfig config_;
};

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const std::vector<NamedTensor>& tensors,
                                          const OptimizerConfig& config) {
  return std::make_unique<AdamW>(tensors, config);
}

}  // namespace transnormer
