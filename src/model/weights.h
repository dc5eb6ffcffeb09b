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
  bool counted = true;  // among the parameters: random features are not
};

// Every tensor that a checkpoint holds (parameters, LRPE's frozen vectors, random
// features), in a fixed order
// under the names of the design: embed.weight, layers.0.attn.q_proj.weight, ..
[[nodiscard]] std::vector<NamedTensor> named_tensors(const TransNormer& model);

// Whether it is the matrix of a product inside the layers: a weight [out, in] of a projection or of
// the feed-forward part.
[[nodiscard]] bool is_hidden_matrix(const NamedTensor& tensor);

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

// A tensor on the CPU of the same sizes and type, for a copy of this one. It holds zeros, so that
// its memory is there. Throws what LibTorch throws where there is none.
[[nodiscard]] at::Tensor room_for(const at::Tensor& tensor);

}  // namespace transnormer
