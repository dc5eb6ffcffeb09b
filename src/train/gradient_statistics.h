// Statistics of the gradients before clipping, by group of parameters: "all", each layer
// ("layers.0"), and each layer's "layers.0.q_proj", "k_proj", "v_proj", "out_proj" and "ffn".
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/training_state.h"
#include "log/events.h"
#include "model/transnormer.h"
#include "model/weights.h"

namespace transnormer {

class GradientStatistics {
 public:
  // The gradients given later are in the order of these parameters.
  explicit GradientStatistics(const std::vector<NamedTensor>& parameters);

  // `norms`: each gradient's 2-norm, fp64 [gradients] (gradient_norms). Adds each group's norm to
  // its running moments, and reports both. Waits for the device.
  [[nodiscard]] std::map<std::string, log::GradientStats> measure(
      const std::vector<at::Tensor>& gradients, const at::Tensor& norms,
      std::map<std::string, RunningMoments>& moments) const;

  // Up to `count` elements of each group, evenly spaced over it.
  [[nodiscard]] std::map<std::string, std::vector<double>> sample(
      const std::vector<at::Tensor>& gradients, std::int64_t count) const;

 private:
  std::map<std::string, std::vector<std::size_t>> groups_;  // indices of the parameters
};

}  // namespace transnormer
