// What every attention is to a layer, and what the attentions with queries, keys, values and an
// output projection share.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "config/config.h"
#include "model/attention/lrpe.h"
#include "model/block.h"
#include "model/context.h"
#include "model/linear.h"
#include "model/norm.h"

namespace transnormer {

// What an attention takes from the model beside its own settings.
struct AttentionSettings {
  std::int64_t layer = 0;  // of `layers`
  std::int64_t layers = 1;
  // Part of the keys of random numbers: the layer, or another number of its own where a layer has
  // several attentions.
  std::int64_t random_key = 0;
  std::int64_t dim = 0;    // of what comes in and goes out
  std::int64_t inner = 0;  // of all heads together; 0: dim
  std::int64_t heads = 1;
  bool lrpe = false;
  double norm_eps = 1e-6;
  double dropout = 0;  // on the attention weights, where there are any
  bool causal = true;
  std::int64_t max_positions = 0;  // data.tokens_per_sample
  at::Device device = at::kCPU;

  [[nodiscard]] std::int64_t inner_dim() const { return inner > 0 ? inner : dim; }
  [[nodiscard]] std::int64_t head_dim() const { return inner_dim() / heads; }
};

class Attention : public torch::nn::Module {
 public:
  // x: [batch, time, dim] -> the same shape, in the type of context.compute. Every attention
  // honours context.visibility and context.positions. With a state the call goes on from what the
  // state has seen, updates it, and makes no gradients; then all that came before is visible.
  [[nodiscard]] virtual at::Tensor forward(const at::Tensor& x, const ForwardContext& context,
                                           AttentionState* state) = 0;
  // The same with queries made of `queries` instead (keys, values and all else of x), both [batch,
  // time, dim]; for those with Abilities::separate_queries.
  [[nodiscard]] virtual at::Tensor forward_from(const at::Tensor& queries, const at::Tensor& x,
                                                const ForwardContext& context,
                                                AttentionState* state);

  // What each token takes from each: fp32 [batch, heads, time, time], the element (t, s) the factor
  // of s's value in t's output before any norm or gate, as it is, signed or not summing up to 1. By
  // time^2 / head_dim columns at a time, O(n^2) in all, for analysis; no gradients.
  [[nodiscard]] virtual at::Tensor weights(const at::Tensor& x, const ForwardContext& context) = 0;

  // .. with queries made of `queries`, as forward_from.
  [[nodiscard]] virtual at::Tensor weights_from(const at::Tensor& queries, const at::Tensor& x,
                                                const ForwardContext& context);

  // Of decoding, for one sequence, with products of this type; zeros where it cannot decode.
  [[nodiscard]] virtual StateBytes state_bytes(at::ScalarType compute) const = 0;

  // Whether a pass that is captured and replayed (model/graphed_pass.h) does what one that is
  // launched does: false where the host makes numbers anew for each update.
  [[nodiscard]] virtual bool can_be_captured() const { return true; }

  // How many tokens a sequence may have, where there is a limit.
  [[nodiscard]] virtual std::optional<std::int64_t> most_positions() const { return std::nullopt; }

  // Only attentions that can decode are asked.
  [[nodiscard]] virtual std::unique_ptr<AttentionState> make_state(std::int64_t batch) const = 0;

  // Floating-point operations a token (forward) of the part between the projections, in a sequence
  // of `length`; masked scores are not counted.
  [[nodiscard]] virtual double flops_per_token(std::int64_t length) const = 0;

  // Bytes that the backward pass keeps for a token, beside x, with products of this type.
  [[nodiscard]] virtual double kept_bytes_per_token(at::ScalarType compute) const = 0;

  // The groups of its parameters whose gradients are reported together.
  [[nodiscard]] virtual std::vector<ParameterGroup> groups() const = 0;
};

// Heads, and the widths of each one's queries and keys, and of its values. None of them depends on
// the model's width.
struct HeadShape {
  std::int64_t heads = 1;
  std::int64_t key_dim = 0;
  std::int64_t value_dim = 0;

  [[nodiscard]] std::int64_t keys() const { return heads * key_dim; }
  [[nodiscard]] std::int64_t values() const { return heads * value_dim; }
};

// The usual one: all of head_dim().
[[nodiscard]] HeadShape usual_heads(const AttentionSettings& settings);

// What the part between the projections is given. q, k: [batch, time, heads, key_dim]; v: [batch,
// time, heads, value_dim]; x: [batch, time, dim], what keys and values were made of.
struct Projected {
  at::Tensor q;
  at::Tensor k;
  at::Tensor v;
  at::Tensor x;
};

// How the projections start; usually by one Xavier gain of q, k and v, 1 and no bias of out.
struct ProjectionStarts {
  ProjectionStarts(double gain)  // NOLINT: implicit
      : q{.xavier_gain = gain}, k(q), v(q), out{.xavier_gain = 1, .zero_bias = true} {}
  LinearStart q;
  LinearStart k;
  LinearStart v;
  LinearStart out;
};

// out_proj(finish(attend(q_proj(x), k_proj(x), v_proj(x)))).
class ProjectedAttention : public Attention {
 public:
  ProjectedAttention(const AttentionSettings& settings, const HeadShape& shape,
                     const ProjectionStarts& starts, NormKind output_norm);

  [[nodiscard]] at::Tensor forward(const at::Tensor& x, const ForwardContext& context,
                                   AttentionState* state) final;
  [[nodiscard]] at::Tensor forward_from(const at::Tensor& queries, const at::Tensor& x,
                                        const ForwardContext& context,
                                        AttentionState* state) override;
  // By values that are unit vectors: what attend() gives is linear in them, unless overridden.
  [[nodiscard]] at::Tensor weights(const at::Tensor& x, const ForwardContext& context) override;
  [[nodiscard]] at::Tensor weights_from(const at::Tensor& queries, const at::Tensor& x,
                                        const ForwardContext& context) override;
  // q, k, v, the heads' output and its norm.
  [[nodiscard]] double kept_bytes_per_token(at::ScalarType compute) const override;
  // "q_proj", "k_proj", "v_proj", "out_proj".
  [[nodiscard]] std::vector<ParameterGroup> groups() const override;

 protected:
  // -> the shape of v.
  [[nodiscard]] virtual at::Tensor attend(const Projected& in, const ForwardContext& context,
                                          AttentionState* state) = 0;

  // q and k as they meet, so that scores are their products but for a scale: what
  // ForwardContext::observer is told. By LRPE, where the model has it, unless overridden.
  [[nodiscard]] virtual Projected scored(const Projected& in, const ForwardContext& context) const;

  // The merged heads, [batch, time, heads * value_dim], before the output projection: their norm,
  // unless overridden.
  [[nodiscard]] virtual at::Tensor finish(const at::Tensor& merged, const at::Tensor& x,
                                          const ForwardContext& context);

  [[nodiscard]] const AttentionSettings& settings() const { return settings_; }
  [[nodiscard]] const HeadShape& shape() const { return shape_; }
  // Those that a token sees of `tokens` in a row, on average.
  [[nodiscard]] double mean_seen(std::int64_t tokens) const;

  // What queries and keys go through: LRPE where the model has it. period: see ops::lrpe.
  [[nodiscard]] ops::Encoding encoding(const ForwardContext& context,
                                       std::int64_t period = 0) const;

  // The state of one that keeps all keys and values.
  [[nodiscard]] StateBytes kept_keys_and_values(at::ScalarType compute) const;

 private:
  [[nodiscard]] Projected project(const at::Tensor& queries, const at::Tensor& x,
                                  const ForwardContext& context) const;
  [[nodiscard]] at::Tensor attended(const Projected& in, const ForwardContext& context,
                                    AttentionState* state);

  AttentionSettings settings_;
  HeadShape shape_;
  LinearGroup qkv_;
  std::shared_ptr<Linear> out_;
  std::shared_ptr<Lrpe> lrpe_;         // null without
  std::shared_ptr<Norm> output_norm_;  // null without
};

}  // namespace transnormer
