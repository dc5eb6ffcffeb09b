// Linear attention by the first-order expansion of e^x: weights 1 + q.k / (|q| |k|), in [0, 2],
// divided by their sum, at least 1e-6; phi(x) = [1; x / |x|]. Li et al. 2020, with LRPE on q and k
// first where the model has it.
#include <ATen/ATen.h>

#include <cmath>

#include "config/fields.h"
#include "model/attention/feature_attention.h"
#include "model/attention/registry.h"

namespace transnormer {
namespace {

struct TaylorAttentionConfig {
  static constexpr const char* kName = "taylor";
  static constexpr const char* kHelp = "Linear attention with weights 1 + q·k of unit vectors";
  static constexpr const char* kFormula = "1 + q·k / (|q| |k|), by their sum";
  static constexpr const char* kCost = "O(n)";
  static constexpr Abilities kAbilities{};

  void visit(FieldVisitor&) {}
  [[nodiscard]] std::shared_ptr<Attention> make(const AttentionSettings& settings) const;
  bool operator==(const TaylorAttentionConfig&) const = default;
};

class TaylorAttention : public FeatureAttention {
 public:
  explicit TaylorAttention(const AttentionSettings& settings)
      : FeatureAttention(settings, std::sqrt(0.5), settings.head_dim() + 1, {.floor = 1e-6}) {}

 protected:
  // What is zero stays so: weights of 1.
  [[nodiscard]] at::Tensor feature(const at::Tensor& x, const Of&, const ForwardContext&) override {
    const at::Tensor length = (x * x).sum(-1, true).clamp_min(1e-24).sqrt();
    return at::cat({at::ones_like(length), x / length}, -1);
  }
};

std::shared_ptr<Attention> TaylorAttentionConfig::make(const AttentionSettings& settings) const {
  return std::make_shared<TaylorAttention>(settings);
}

[[maybe_unused]] const bool kAdded = add_attention<TaylorAttentionConfig>();

}  // namespace
}  // namespace transnormer
