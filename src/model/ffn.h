// The feed-forward part of a layer.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>

#include "config/config.h"
#include "model/linear.h"

namespace transnormer {

class Ffn : public torch::nn::Module {
 public:
  // x: [batch, time, dim] -> the same shape, in the type of the products.
  [[nodiscard]] virtual at::Tensor forward(const at::Tensor& x, at::ScalarType compute) const = 0;
};

// GLU: down(act(gate(x)) * up(x)). Shazeer 2020. mlp: fc2(act(fc1(x))).
[[nodiscard]] std::shared_ptr<Ffn> make_ffn(const ModelConfig& config, at::Device device);

}  // namespace transnormer
