// Scaled dot-product attention over the whole sequence. Vaswani et al. 2017.
#include <ATen/ATen.h>

#include <cmath>
#include <limits>

#include "model/attention/key_value_cache.h"
#include "model/attention/registry.h"
#include "ops/attention/block_attention.h"

namespace transnormer {
namespace {

struct SoftmaxAttentionConfig {
  static constexpr const char* kName = "softmax";
  static constexpr const char* kHelp = "Scaled dot-product attention over the whole sequence";
  static constexpr const char* kFormula = "softmax(q·k / sqrt(dh))";
  static constexpr const char* kCost = "O(n^2)";
  static constexpr Abilities kAbilities{};

  void visit(FieldVisitor&) {}
  [[nodiscard]] Weighting weighting() const { return Weighting::softmax; }
  [[nodiscard]] std::shared_ptr<Attention> make(const AttentionSettings& settings) const;
  bool operator==(const SoftmaxAttentionConfig&) const = default;
};

class SoftmaxAttention : public ProjectedAttention {
 public:
  explicit SoftmaxAttention(const AttentionSettings& settings)
      : ProjectedAttention(settings, usual_heads(settings), std::sqrt(0.5), NormKind::none),
        scale_(1 / std::sqrt(static_cast<double>(settings.head_dim()))) {}

  // The keys and values of all tokens.
  [[nodiscard]] std::unique_ptr<AttentionState> make_state(std::int64_t) const override {
    return std::make_unique<KeyValueCache>(std::numeric_limits<std::int64_t>::max());
  }

  [[nodiscard]] StateBytes state_bytes(at::ScalarType compute) const override {
    return kept_keys_and_values(compute);
  }

  [[nodiscard]] double flops_per_token(std::int64_t length) const override {
    return 4 * static_cast<double>(settings().inner_dim()) * mean_seen(length);
  }

 protected:
  [[nodiscard]] at::Tensor attend(const Projected& in, const ForwardContext& context,
                                  AttentionState* state) override {
    const auto& [q, k, v, x] = in;
    const ops::Encoding encoded = encoding(context);
    if (state == nullptr) {
      return ops::block_attention(
          q, k, v,
          {.score = ScoreKind::softmax,
           .block = 0,
           .scale = scale_,
           .dropout = context.training ? settings().dropout : 0,
           .dropout_key = context.dropout_key(settings().random_key, DropoutSite::attention_weights,
                                              settings().heads * q.size(1)),
           .encoding = encoded,
           .visibility = context.visibility});
    }
    auto& cache = static_cast<KeyValueCache&>(*state);
    cache.append(ops::encode(k, encoded), v);
    return ops::attention_step(ops::encode(q, encoded), cache.keys(), cache.values(),
                               ScoreKind::softmax, scale_);
  }

 private:
  double scale_;
};

std::shared_ptr<Attention> SoftmaxAttentionConfig::make(const AttentionSettings& settings) const {
  return std::make_shared<SoftmaxAttention>(settings);
}

[[maybe_unused]] const bool kAdded = add_attention<SoftmaxAttentionConfig>();

}  // namespace
}  // namespace transnormer
