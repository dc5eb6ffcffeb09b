// AdamW over named parameters, its state in plain tensors under the parameters' names.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "config/config.h"
#include "model/transnormer.h"
#include "model/weights.h"

namespace transnormer {

// Decoupled decay (p -= lr * wd * p), eps added after bias correction, as in PyTorch; one fused
// kernel over all parameters. Loshchilov and Hutter 2019.
//
// Owns the gradients' memory: every parameter has a gradient from construction on, zero until a
// backward pass adds to it, so that a parameter that the loss does not reach decays like the others
// and the first update after a resume is like any other. Parameters that lie one behind the other
// in memory (model/linear.h, LinearGroup) have gradients and moments that do, too.
class AdamW {
 public:
  // Tensors that are not trainable are left out.
  AdamW(const std::vector<NamedTensor>& parameters, const OptimizerConfig& config);

  // Applies the parameters' gradients at this learning rate.
  void step(double lr);
  // Sets the gradients to zero and keeps their memory.
  void zero_gradients();

  // "NAME.exp_avg" and "NAME.exp_avg_sq", in the parameters' order; loading copies into them.
  [[nodiscard]] std::vector<NamedTensor> named_state() const;
  // Applied so far (for the bias correction).
  [[nodiscard]] std::int64_t updates() const { return updates_; }
  void set_updates(std::int64_t updates) { updates_ = updates; }

  [[nodiscard]] const std::vector<NamedTensor>& parameters() const { return parameters_; }
  // The parameters' gradients, in their order; they share the parameters' own.
  [[nodiscard]] std::vector<at::Tensor> gradients() const;

 private:
  // Parameters one behind the other, as the kernel takes them: each tensor of one dimension.
  struct Stretches {
    std::vector<at::Tensor> values;
    std::vector<at::Tensor> gradients;
    std::vector<at::Tensor> exp_avg;
    std::vector<at::Tensor> exp_avg_sq;
    std::vector<at::Tensor> steps;  // all the one counter_
  };
  // The numbers of its parameters, in their order in memory.
  void add_stretch(const std::vector<std::size_t>& members);

  std::vector<NamedTensor> parameters_;
  OptimizerConfig config_;
  std::vector<at::Tensor> exp_avg_;  // of each parameter, views of the stretches' own
  std::vector<at::Tensor> exp_avg_sq_;
  Stretches stretches_;
  at::Tensor counter_;  // updates, as the kernel takes them
  std::int64_t updates_ = 0;
};

}  // namespace transnormer
