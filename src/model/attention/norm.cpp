// NormAttention: linear attention without a denominator, its output normalised.
#include "model/attention/norm.h"

#include <ATen/ATen.h>

#include <cmath>

#include "model/attention/registry.h"
#include "ops/attention/linear_attention.h"

namespace transnormer {
namespace {

// The sum of k v^T so far, [batch, heads, head_dim, head_dim] in fp32: its size does not depend on
// the number of tokens, and sums over long sequences keep their bits.
struct LinearState : AttentionState {
  explicit LinearState(at::Tensor zeros) : sum(std::move(zeros)) {}
  [[nodiscard]] std::int64_t bytes() const override {
    return static_cast<std::int64_t>(sum.nbytes());
  }
  at::Tensor sum;
};

class NormAttention : public ProjectedAttention {
 public:
  NormAttention(const NormAttentionConfig& config, const AttentionSettings& settings)
      : ProjectedAttention(settings, usual_heads(settings), std::sqrt(0.5), config.output_norm),
        config_(config) {}

  [[nodiscard]] std::unique_ptr<AttentionState> make_state(std::int64_t batch) const override {
    const std::int64_t width = settings().head_dim();
    return std::make_unique<LinearState>(
        at::zeros({batch, settings().heads, width, width}, at::device(settings().device)));
  }

  [[nodiscard]] StateBytes state_bytes(at::ScalarType) const override {
    return {.fixed = 4 * static_cast<double>(settings().inner_dim() * settings().head_dim())};
  }

  // The state's update and its reading; how the chunks are cut is not counted.
  [[nodiscard]] double flops_per_token(std::int64_t) const override {
    return 4 * static_cast<double>(settings().inner_dim() * settings().head_dim());
  }

 protected:
  // LRPE comes after phi, so scores may be negative even where phi is not.
  [[nodiscard]] at::Tensor attend(const Projected& in, const ForwardContext& context,
                                  AttentionState* state) override {
    const auto& [q, k, v, x] = in;
    ops::Encoding encoded = encoding(context);
    encoded.feature = config_.kernel;
    if (state == nullptr) {
      return ops::linear_attention(
          q, k, v,
          {.encoding = encoded, .visibility = context.visibility, .sequence = context.sequence});
    }
    return ops::linear_attention_step(q, k, v, static_cast<LinearState&>(*state).sum, encoded);
  }

  [[nodiscard]] Projected scored(const Projected& in,
                                 const ForwardContext& context) const override {
    ops::Encoding encoded = encoding(context);
    encoded.feature = config_.kernel;
    return {.q = ops::encode(in.q, encoded), .k = ops::encode(in.k, encoded), .v = in.v, .x = in.x};
  }

 private:
  NormAttentionConfig config_;
};

}  // namespace

void NormAttentionConfig::visit(FieldVisitor& visitor) {
  visit_choice(visitor,
               {"kernel", "Feature map of queries and keys: 1 + elu, elu, relu, silu, or e^x"},
               kernel, kFeatureMapNames);
  visit_choice(visitor, {"output_norm", "Norm of the merged heads"}, output_norm, kOutputNormNames);
}

std::shared_ptr<Attention> NormAttentionConfig::make(const AttentionSettings& settings) const {
  return std::make_shared<NormAttention>(*this, settings);
}

namespace {
[[maybe_unused]] const bool kAdded = add_attention<NormAttentionConfig>();
}  // namespace

}  // namespace transnormer
