#include "optim/optimizer.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <numeric>
#include <utility>

#include "optim/adamw.h"

namespace transnormer {

namespace {

bool lies_behind(const at::Tensor& first, const at::Tensor& second) {
  return first.is_alias_of(second) && first.is_contiguous() && second.is_contiguous() &&
         first.scalar_type() == second.scalar_type() &&
         second.storage_offset() == first.storage_offset() + first.numel();
}

// Parameters in the order of their memory, those of one storage together.
std::vector<std::size_t> memory_order(const std::vector<NamedTensor>& parameters) {
  std::vector<std::size_t> order(parameters.size());
  std::iota(order.begin(), order.end(), 0);
  const auto start = [&](std::size_t i) {
    return static_cast<const char*>(parameters[i].tensor.const_data_ptr());
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return std::less<>()(start(a), start(b)); });
  return order;
}

}  // namespace

AdamW::AdamW(const std::vector<NamedTensor>& parameters, const OptimizerConfig& config)
    : config_(config) {
  const at::NoGradGuard no_grad;
  std::copy_if(parameters.begin(), parameters.end(), std::back_inserter(parameters_),
               [](const NamedTensor& parameter) { return parameter.trainable; });
  exp_avg_.resize(parameters_.size());
  exp_avg_sq_.resize(parameters_.size());
  const std::vector<std::size_t> order = memory_order(parameters_);
  for (std::size_t first = 0; first < order.size();) {
    std::size_t last = first + 1;
    while (last < order.size() &&
           lies_behind(parameters_[order[last - 1]].tensor, parameters_[order[last]].tensor)) {
      ++last;
    }
    add_stretch({order.begin() + static_cast<std::ptrdiff_t>(first),
                 order.begin() + static_cast<std::ptrdiff_t>(last)});
    first = last;
  }
}

void AdamW::add_stretch(const std::vector<std::size_t>& members) {
  const at::Tensor& front = parameters_[members.front()].tensor;
  std::int64_t count = 0;
  for (const std::size_t member : members) {
    count += parameters_[member].tensor.numel();
  }
  const at::Tensor values = front.detach().as_strided({count}, {1});
  const at::Tensor gradients = at::zeros_like(values);
  const at::Tensor exp_avg = at::zeros_like(values);
  const at::Tensor exp_avg_sq = at::zeros_like(values);
  std::int64_t place = 0;
  for (const std::size_t member : members) {
    const at::Tensor& parameter = parameters_[member].tensor;
    const auto part = [&](const at::Tensor& whole) {
      return whole.narrow(0, place, parameter.numel()).view(parameter.sizes());
    };
    at::Tensor& gradient = parameter.mutable_grad();
    if (gradient.defined()) {
      part(gradients).copy_(gradient);
    }
    gradient = part(gradients);
    exp_avg_[member] = part(exp_avg);
    exp_avg_sq_[member] = part(exp_avg_sq);
    place += parameter.numel();
  }
  if (stretches_.steps.empty()) {
    counter_ = at::zeros({}, values.options());
  }
  stretches_.values.push_back(values);
  stretches_.gradients.push_back(gradients);
  stretches_.exp_avg.push_back(exp_avg);
  stretches_.exp_avg_sq.push_back(exp_avg_sq);
  stretches_.steps.push_back(counter_);
}

void AdamW::step(double lr) {
  if (parameters_.empty()) {
    return;
  }
  const at::NoGradGuard no_grad;
  ++updates_;
  counter_.fill_(static_cast<double>(updates_));
  const AdamWConfig& rule = std::as_const(config_.rule).get<AdamWConfig>();
  at::_fused_adamw_(stretches_.values, stretches_.gradients, stretches_.exp_avg,
                    stretches_.exp_avg_sq, /*max_exp_avg_sqs=*/{}, stretches_.steps, lr,
                    rule.betas[0], rule.betas[1], config_.weight_decay, rule.eps,
                    /*amsgrad=*/false, /*maximize=*/false);
  // The fused kernel does not tell that the parameters have changed.
  for (const at::Tensor& values : stretches_.values) {
    torch::autograd::impl::bump_version(values);
  }
}

void AdamW::zero_gradients() {
  at::_foreach_zero_(stretches_.gradients);
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
  gradients.reserve(parameters_.size());
  for (const NamedTensor& parameter : parameters_) {
    gradients.push_back(parameter.tensor.grad());
  }
  return gradients;
}

}  // namespace transnormer
