// NormAttention: out_proj(norm(o)), o_t = sum_s lambda^(t-s) (phi(q_t).phi(k_s)) v_s.
//
// decay "fixed": lambda_h = exp(-s_h (1 - l / (L-1) + 1e-5)), s_h = 2^(-8h/H), for head h of H,
// from 1, in layer l of L, from 0; with one layer the factor is 1 + 1e-5. gate: out_proj(norm(o) *
// act(gate_proj(x))), x the layer's input.
#include "model/attention/norm.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "model/attention/linear_state.h"
#include "model/attention/registry.h"
#include "ops/attention/linear_attention.h"

namespace transnormer {
namespace {

constexpr std::array kDecayNames{Named{DecayKind::none, "none"}, Named{DecayKind::fixed, "fixed"}};
constexpr std::array kGateNames{Named{GateKind::none, "none"}, Named{GateKind::linear, "linear"},
                                Named{GateKind::silu, "silu"}, Named{GateKind::sigmoid, "sigmoid"}};

// fp32 [heads].
at::Tensor fixed_decay(const AttentionSettings& settings) {
  const auto last = static_cast<double>(std::max<std::int64_t>(settings.layers - 1, 1));
  const double depth = 1 - static_cast<double>(settings.layer) / last + 1e-5;
  std::vector<double> decay;
  for (std::int64_t head = 1; head <= settings.heads; ++head) {
    const double slope =
        std::exp2(-8 * static_cast<double>(head) / static_cast<double>(settings.heads));
    decay.push_back(std::exp(-slope * depth));
  }
  return at::tensor(decay, at::kDouble).to(at::kFloat);
}

class NormAttention : public ProjectedAttention {
 public:
  NormAttention(const NormAttentionConfig& config, const AttentionSettings& settings)
      : ProjectedAttention(settings, usual_heads(settings), std::sqrt(0.5), config.output_norm),
        config_(config) {
    if (config.decay == DecayKind::fixed && !settings.device.is_meta()) {
      decay_ = fixed_decay(settings).to(settings.device);
    }
    if (config.gate != GateKind::none) {
      gate_ = register_module(
          "gate_proj",
          std::make_shared<Linear>(settings.dim, shape().values(), LinearStart{}, settings.device));
    }
  }

  [[nodiscard]] std::unique_ptr<AttentionState> make_state(std::int64_t batch) const override {
    return std::make_unique<LinearState>(ops::LinearAttentionSums(
        batch, shape().heads, shape().key_dim, shape().value_dim, {}, settings().device));
  }

  [[nodiscard]] StateBytes state_bytes(at::ScalarType) const override {
    return {.fixed = 4 * static_cast<double>(shape().keys() * shape().value_dim)};
  }

  // The state's update and its reading; how the chunks are cut is not counted.
  [[nodiscard]] double flops_per_token(std::int64_t) const override {
    return 4 * static_cast<double>(shape().keys() * shape().value_dim);
  }

  [[nodiscard]] double kept_bytes_per_token(at::ScalarType compute) const override {
    return ProjectedAttention::kept_bytes_per_token(compute) +
           (gate_ ? 2 * static_cast<double>(shape().values()) *
                        static_cast<double>(c10::elementSize(compute))
                  : 0);
  }

  [[nodiscard]] std::vector<ParameterGroup> groups() const override {
    std::vector<ParameterGroup> groups = ProjectedAttention::groups();
    if (gate_) {
      groups.push_back({"gate_proj", gate_->parameters()});
    }
    return groups;
  }

 protected:
  // LRPE comes after phi, so scores may be negative even where phi is not.
  [[nodiscard]] at::Tensor attend(const Projected& in, const ForwardContext& context,
                                  AttentionState* state) override {
    ops::LinearAttentionOptions options{.encoding = encoding(context),
                                        .visibility = context.visibility,
                                        .sequence = context.sequence,
                                        .decay = decay_};
    options.encoding.feature = config_.kernel;
    if (state == nullptr) {
      return ops::linear_attention(in.q, in.k, in.v, options);
    }
    return ops::linear_attention_step(in.q, in.k, in.v, static_cast<LinearState&>(*state).sums,
                                      options);
  }

  [[nodiscard]] at::Tensor finish(const at::Tensor& merged, const at::Tensor& x,
                                  const ForwardContext& context) override {
    const at::Tensor normed = ProjectedAttention::finish(merged, x, context);
    return gate_ ? normed * activated(gate_->forward(x, context.compute)) : normed;
  }

  [[nodiscard]] Projected scored(const Projected& in,
                                 const ForwardContext& context) const override {
    ops::Encoding encoded = encoding(context);
    encoded.feature = config_.kernel;
    return {.q = ops::encode(in.q, encoded), .k = ops::encode(in.k, encoded), .v = in.v, .x = in.x};
  }

 private:
  [[nodiscard]] at::Tensor activated(const at::Tensor& gate) const {
    switch (config_.gate) {
      case GateKind::silu:
        return at::silu(gate);
      case GateKind::sigmoid:
        return at::sigmoid(gate);
      default:
        return gate;
    }
  }

  NormAttentionConfig config_;
  at::Tensor decay_;              // undefined without
  std::shared_ptr<Linear> gate_;  // null without
};

}  // namespace

void NormAttentionConfig::visit(FieldVisitor& visitor) {
  visit_choice(visitor,
               {"kernel", "Feature map of queries and keys: 1 + elu, elu, relu, silu, or e^x"},
               kernel, kFeatureMapNames);
  visit_choice(visitor, {"output_norm", "Norm of the merged heads"}, output_norm, kOutputNormNames);
  visit_choice(visitor,
               {"decay", "fixed: what a token adds fades by a factor of each head and layer"},
               decay, kDecayNames);
  visit_choice(visitor, {"gate", "Activation of a gate on the normed output, made of the input"},
               gate, kGateNames);
}

std::shared_ptr<Attention> NormAttentionConfig::make(const AttentionSettings& settings) const {
  return std::make_shared<NormAttention>(*this, settings);
}

namespace {
[[maybe_unused]] const bool kAdded = add_attention<NormAttentionConfig>();
}  // namespace

}  // namespace transnormer
