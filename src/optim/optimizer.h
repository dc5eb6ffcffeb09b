// AdamW over named parameters, its state in plain tensors under the parameters' names.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "config/config.h"
#include "model/transnormer.h"

namespace transnormer {

// Decoupled decay (p -= lr * wd * p), eps added after bias correction, as in PyTorch; one fused
// kernel over all parameters. Loshchilov and Hutter 2019.
class AdamW {
 public:
  AdamW(std::vector<NamedTensor> parameters, const OptimizerConfig& config);

  // Applies the parameters' gradients at this learning rate.
  void step(double lr);
  // Forgets the gradients but keeps their memory.
  void zero_gradients();

  // "NAME.exp_avg" and "NAME.exp_avg_sq", in the parameters' order; loading copies into them.
  [[nodiscard]] std::vector<NamedTensor> named_state() const;
  [[nodiscard]] std::int64_t updates() const { return updates_; }  // applied so far (bias correction)
  void set_updates(std::int64_t updates);

  [[nodiscard]] const std::vector<NamedTensor>& parameters() const { return parameters_; }

 private:
  std::vector<NamedTensor> parameters_;
  OptimizerConfig config_;
  std::vector<at::Tensor> exp_avg_;
  std::vector<at::Tensor> exp_avg_sq_;
  std::vector<at::Tensor> steps_;
  std::int64_t updates_ = 0;
};

}  // namespace transnormer
