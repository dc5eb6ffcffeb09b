// The tensors of a model by name, and how they start.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace transnormer {

class TransNormer;
struct ParameterGroup;

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
  bool trainable = true;
};

// Every tensor that a checkpoint holds (parameters and LRPE's frozen vectors), in a fixed order
// under the names of the design: embed.weight, layers.0.attn.q_proj.weight, ..
[[nodiscard]] std::vector<NamedTensor> named_tensors(const TransNormer& model);

// "layers.I" of all parameters of a layer, and "layers.I.NAME" of each group that its block
// declares.
[[nodiscard]] std::vector<ParameterGroup> parameter_groups(const TransNormer& model);

// Whether every weight is a finite number. Waits for the device.
[[nodiscard]] bool has_finite_weights(const TransNormer& model);

// Throws UserError where one is not; `name`, of the weights' origin, begins the message.
void require_finite_weights(const TransNormer& model, const std::string& name);

// Sets the published initial weights as a function of (seed, name): the same on any device. Throws
// StoppedError when a signal asks to stop meanwhile.
void initialize(TransNormer& model, std::uint64_t seed);

}  // namespace transnormer
