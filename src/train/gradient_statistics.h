// Statistics of the gradients before clipping, by group of parameters: "all", and those that the
// model declares (parameter_groups, model/weights.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/training_state.h"
#include "log/events.h"
#include "model/block.h"
#include "model/weights.h"

namespace transnormer {

class GradientStatistics {
 public:
  // The gradients given later are in the order of these parameters. `groups` may overlap; "all" is
  // one beside them.
  GradientStatistics(const std::vector<NamedTensor>& parameters,
                     const std::vector<ParameterGroup>& groups);

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
