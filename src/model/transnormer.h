// The language model: embedding, layers, final norm. "The Devil in Linear Transformer", Qin et al.
// 2022; the published setting is the default ModelConfig.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "config/config.h"
#include "model/context.h"
#include "model/model_size.h"
#include "model/position.h"
#include "ops/loss/linear_cross_entropy.h"
#include "ops/weights/weight.h"

namespace transnormer {

class Block;
class Norm;
class OutputTable;
class Table;

class TransNormer : public torch::nn::Module {
 public:
  // Parameters are fp32 and uninitialised; on at::kMeta they take no memory. Throws UserError where
  // parts do not fit together, or the device has not the memory for the weights.
  TransNormer(const ModelConfig& config, const ModelSize& size, at::Device device);
  ~TransNormer() override;

  // tokens: [batch, time], int64. Result: [batch, time, dim], after the last norm, in the type of
  // context.compute. With a state the call goes on from what the state has seen and updates it:
  // whole sequences, chunks of a prompt and single steps are the same call; it makes no gradients.
  // What the context's padding, segments and positions say is honoured by every layer, without a
  // state only. Where ranks share sequences, tokens are this rank's part of each. Throws UserError
  // for a position past a learned table, ops::PassStopped where the context says so.
  [[nodiscard]] at::Tensor forward(const at::Tensor& tokens, const ForwardContext& context,
                                   ModelState* state = nullptr);

  // hidden: [.., dim] -> fp32 logits [.., vocab_size].
  [[nodiscard]] at::Tensor logits(const at::Tensor& hidden, const ForwardContext& context) const;

  [[nodiscard]] const ops::Weight& embedding_weight() const;
  // The weight of the output layer: the embedding's where tied; and with its bias, if any.
  [[nodiscard]] const ops::Weight& output_weight() const;
  [[nodiscard]] ops::OutputLayer output_layer() const;

  // Throws UserError where the model cannot decode.
  [[nodiscard]] ModelState make_state(std::int64_t batch) const;

  // The layers, in order.
  [[nodiscard]] const std::vector<std::shared_ptr<Block>>& blocks() const { return blocks_; }

  // How many tokens a sequence may have, by a table of positions and all attentions; none: any
  // number.
  [[nodiscard]] std::optional<std::int64_t> most_positions() const;

  // Whether each layer can; see Attention.
  [[nodiscard]] bool can_be_captured() const;

  [[nodiscard]] const ModelConfig& config() const { return config_; }
  [[nodiscard]] const ModelSize& size() const { return size_; }
  [[nodiscard]] at::Device device() const;

 private:
  // The residual stream before the first layer, fp32.
  [[nodiscard]] at::Tensor embed(const at::Tensor& tokens, const ForwardContext& context);
  // What is added to it: [time, dim], or [batch, time, dim] where the context names positions.
  [[nodiscard]] at::Tensor positions(std::int64_t time, const ForwardContext& context);

  ModelConfig config_;
  ModelSize size_;
  SinusoidalPositions sinusoid_;
  std::shared_ptr<Table> embedding_;
  std::shared_ptr<Table> position_table_;  // null unless learned
  std::shared_ptr<Norm> embed_norm_;       // null where there is none
  std::vector<std::shared_ptr<Block>> blocks_;
  std::shared_ptr<Norm> final_norm_;     // null unless pre-norm
  std::shared_ptr<OutputTable> output_;  // null where tied and without a bias
};

}  // namespace transnormer
