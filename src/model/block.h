// What a layer is: anything from the residual stream to the residual stream. Most attentions are
// given one by AttentionThenFfn; an attention may also make a block of its own
// (model/attention/registry.h).
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "model/context.h"

namespace transnormer {

// What a block takes from the model beside its own settings.
struct BlockSettings {
  const ModelConfig& model;
  std::int64_t layer = 0;          // part of the random keys
  std::int64_t max_positions = 0;  // data.tokens_per_sample
  at::Device device = at::kCPU;
};

// Floating-point operations of a token, forward.
struct BlockFlops {
  double products = 0;   // with the block's weights
  double attention = 0;  // between them; masked scores are not counted
};

// What decoding keeps of one sequence.
struct StateBytes {
  double fixed = 0;      // whatever its length
  double per_token = 0;  // of what was read
};

// Parameters whose gradients are reported together, as "layers.I.NAME".
struct ParameterGroup {
  std::string name;
  std::vector<at::Tensor> parameters;
};

// Its parameters and frozen vectors are those that it registers; they may be on at::kMeta.
class Block : public torch::nn::Module {
 public:
  // x: the residual stream, [batch, time, dim], fp32 -> the same. With a state the call goes on
  // from what the state has seen, updates it, and makes no gradients.
  [[nodiscard]] virtual at::Tensor forward(const at::Tensor& x, const ForwardContext& context,
                                           AttentionState* state) = 0;
  // The same without a state, keeping x only for the backward pass.
  [[nodiscard]] at::Tensor forward_recomputed(const at::Tensor& x, const ForwardContext& context);

  // For a batch of so many sequences; only blocks that can decode are asked.
  [[nodiscard]] virtual std::unique_ptr<AttentionState> make_state(std::int64_t batch) const = 0;

  // In a sequence of `length` tokens. Unless told, each Linear inside is applied once a token.
  [[nodiscard]] virtual BlockFlops flops_per_token(std::int64_t length) const;

  // Of its attention; as Attention has it. attention_weights: x is the stream at the block's start.
  [[nodiscard]] virtual at::Tensor attention_weights(const at::Tensor& x,
                                                     const ForwardContext& context) = 0;
  [[nodiscard]] virtual StateBytes state_bytes(at::ScalarType compute) const = 0;
  [[nodiscard]] virtual bool can_be_captured() const { return true; }
  [[nodiscard]] virtual std::optional<std::int64_t> most_positions() const { return std::nullopt; }

  // Bytes that the backward pass keeps for a token, the stream at the block's start among them.
  [[nodiscard]] virtual double kept_bytes_per_token(at::ScalarType compute) const = 0;

  // The groups of its parameters; what is in none counts in "layers.I" only.
  [[nodiscard]] virtual std::vector<ParameterGroup> groups() const = 0;
};

// Of the weights of all Linears in a module, each applied once a token.
[[nodiscard]] double product_flops(const torch::nn::Module& module);

}  // namespace transnormer
