#include "optim/optimizer.h"

namespace transnormer {

AdamW::AdamW(const std::vector<NamedTensor>& parameters, const OptimizerConfig& config)
    : config_(config) {
  const at::NoGradGuard no_grad;
  at::Tensor counter;
  for (const NamedTensor& parameter : parameters) {
    if (!parameter.trainable) {
      continue;
    }
    if (!counter.defined()) {
      counter = at::zeros({}, parameter.tensor.options().requires_grad(false));
    }
    parameters_.push_back(parameter);
    values_.push_back(parameter.tensor);
    exp_avg_.push_back(at::zeros_like(parameter.tensor));
    exp_avg_sq_.push_back(at::zeros_like(parameter.tensor));
    steps_.push_back(counter);
    if (!parameter.tensor.grad().defined()) {
      parameter.tensor.mutable_grad() = at::zeros_like(parameter.tensor);
    }
  }
}

void AdamW::step(double lr) {
  if (values_.empty()) {
    return;
  }
  const at::NoGradGuard no_grad;
  ++updates_;
  steps_.front().fill_(static_cast<double>(updates_));
  at::_fused_adamw_(values_, gradients(), exp_avg_, exp_avg_sq_, /*max_exp_avg_sqs=*/{}, steps_, lr,
                    config_.betas[0], config_.betas[1], config_.weight_decay, config_.eps,
                    /*amsgrad=*/false, /*maximize=*/false);
}

void AdamW::zero_gradients() {
  at::_foreach_zero_(gradients());
}

std::vector<NamedTensor> AdamW::named_state() const {
  std::vector<NamedTensor> state;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    state.push_back({parameters_[i].name + ".exp_avg", exp_avg_[i], false});
    state.push_back({parameters_[i].name + ".exp_avg_sq", exp_avg_sq_[i], false});
  }
  return state;
}

std::vector<at::Tensor> AdamW::gradients() const {
  std::vector<at::Tensor> gradients;
  gradients.reserve(values_.size());
  for (const at::Tensor& value : values_) {
    gradients.push_back(value.grad());
  }
  return gradients;
}

}  // namespace transnormer
