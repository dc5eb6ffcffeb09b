// One layer: an attention and a feed-forward part, each with its norm, its dropout and the residual
// stream around it.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "config/config.h"
#include "model/attention/attention.h"
#include "model/ffn.h"
#include "model/norm.h"
#include "ops/residual.h"

namespace transnormer {

// pre: x + drop(part(norm(x))); post: norm(x + drop(part(x))).
class Layer : public torch::nn::Module {
 public:
  Layer(const ModelConfig& config, std::int64_t index, at::Device device);

  // x: the residual stream, [batch, time, dim], fp32.
  [[nodiscard]] at::Tensor forward(const at::Tensor& x, const ForwardContext& context,
                                   AttentionState* state);

  // The same, keeping x only for the backward pass.
  [[nodiscard]] at::Tensor forward_recomputed(const at::Tensor& x, const ForwardContext& context);

  [[nodiscard]] const Attention& attention() const { return *attention_; }

 private:
  [[nodiscard]] at::Tensor forward_pre(const at::Tensor& x, const ForwardContext& context,
                                       AttentionState* state);
  [[nodiscard]] at::Tensor forward_post(const at::Tensor& x, const ForwardContext& context,
                                        AttentionState* state);
  [[nodiscard]] ops::Drop drop(DropoutSite site, const ForwardContext& context) const;

  std::int64_t index_;
  NormPlacement placement_;
  double dropout_;
  std::shared_ptr<Norm> attention_norm_;
  std::shared_ptr<Attention> attention_;
  std::shared_ptr<Norm> ffn_norm_;
  std::shared_ptr<Ffn> ffn_;
  std::vector<at::Tensor> parameters_;  // of this layer, for forward_recomputed
};

}  // namespace transnormer
