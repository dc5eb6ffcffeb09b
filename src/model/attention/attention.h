// What every attention is to a layer, and what the attentions with queries, keys, values and an
// output projection share.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>

#include "config/config.h"
#include "model/attention/lrpe.h"
#include "model/context.h"
#include "model/linear.h"
#include "model/norm.h"

namespace transnormer {

// What an attention takes from the model beside its own settings.
struct AttentionSettings {
  std::int64_t layer = 0;  // part of the random keys
  std::int64_t dim = 0;
  std::int64_t heads = 1;
  bool lrpe = false;
  double norm_eps = 1e-6;
  double dropout = 0;  // on the attention weights, where there are any
  at::Device device = at::kCPU;

  [[nodiscard]] std::int64_t head_dim() const { return dim / heads; }
};

class Attention : public torch::nn::Module {
 public:
  // x: [batch, time, dim] -> the same shape, in the type of context.compute. With a state the call
  // goes on from what the state has seen, updates it, and makes no gradients.
  [[nodiscard]] virtual at::Tensor forward(const at::Tensor& x, const ForwardContext& context,
                                           AttentionState* state) = 0;

  [[nodiscard]] virtual std::unique_ptr<AttentionState> make_state(std::int64_t batch) const = 0;

  // Floating-point operations a token (forward) of the part between the projections, in a sequence
  // of `length`; masked scores are not counted.
  [[nodiscard]] virtual double flops_per_token(std::int64_t length) const = 0;
};

// out_proj(norm(attend(q_proj(x), k_proj(x), v_proj(x)))).
class ProjectedAttention : public Attention {
 public:
  // `gain`: of the Xavier initialisation of q, k and v; that of out is 1.
  ProjectedAttention(const AttentionSettings& settings, double gain, NormKind output_norm);

  [[nodiscard]] at::Tensor forward(const at::Tensor& x, const ForwardContext& context,
                                   AttentionState* state) final;

 protected:
  // q, k, v: [batch, time, heads, head_dim] -> the same shape.
  [[nodiscard]] virtual at::Tensor attend(const at::Tensor& q, const at::Tensor& k,
                                          const at::Tensor& v, const ForwardContext& context,
                                          AttentionState* state) = 0;

  [[nodiscard]] const AttentionSettings& settings() const { return settings_; }

  // What queries and keys go through: LRPE where the model has it. period: see ops::lrpe.
  [[nodiscard]] ops::Encoding encoding(const ForwardContext& context,
                                       std::int64_t period = 0) const;

 private:
  AttentionSettings settings_;
  LinearGroup qkv_;
  std::shared_ptr<Linear> out_;
  std::shared_ptr<Lrpe> lrpe_;         // null without
  std::shared_ptr<Norm> output_norm_;  // null without
};

}  // namespace transnormer
