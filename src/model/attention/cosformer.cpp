// cosFormer: weights relu(q).relu(k) cos(pi/2 (i - j) / M), divided by their sum, at least 1e-6. By
// cos(a - b) = cos a cos b + sin a sin b they are those of the features [relu(x) sin(pi i / 2M);
// relu(x) cos(pi i / 2M)], i counted from 1 over the real tokens. Qin et al. 2022 (ICLR).
//
// The published code takes the length of each call for M, so that what a token gives depends on how
// many follow; here M is the setting `horizon`, beyond which there is no position.
#include <ATen/ATen.h>

#include <cmath>
#include <numbers>

#include "config/fields.h"
#include "model/attention/feature_attention.h"
#include "model/attention/registry.h"
#include "util/error.h"

namespace transnormer {
namespace {

struct CosformerAttentionConfig {
  static constexpr const char* kName = "cosformer";
  static constexpr const char* kHelp = "Linear attention of ReLU features, re-weighted by a cosine";
  static constexpr const char* kFormula = "relu(q)·relu(k) cos(pi/2 (i-j)/M), by their sum";
  static constexpr const char* kCost = "O(n)";
  static constexpr Abilities kAbilities{.lrpe = false};

  std::int64_t horizon = 0;

  void visit(FieldVisitor& visitor) {
    visitor.integer(
        {"horizon", "M of the cosine, and the most positions; 0: data.tokens_per_sample",
         OnResume::refuse, "tokens"},
        horizon, {0, kMaxSize});
  }
  [[nodiscard]] std::vector<std::string> faults(const AttentionSettings& settings) const {
    if (horizon == 0 || horizon >= settings.max_positions) {
      return {};
    }
    return {"horizon: expected 0 or at least data.tokens_per_sample (" +
            std::to_string(settings.max_positions) + "), got " + std::to_string(horizon)};
  }
  [[nodiscard]] std::shared_ptr<Attention> make(const AttentionSettings& settings) const;
  bool operator==(const CosformerAttentionConfig&) const = default;
};

// As published: those of queries and keys by LibTorch's own.
ProjectionStarts published_starts() {
  ProjectionStarts starts(std::sqrt(0.5));
  starts.q = starts.k = {};
  return starts;
}

class CosformerAttention : public FeatureAttention {
 public:
  CosformerAttention(const CosformerAttentionConfig& config, const AttentionSettings& settings)
      : FeatureAttention(settings, published_starts(), 2 * settings.head_dim(), {.floor = 1e-6}),
        horizon_(config.horizon > 0 ? config.horizon : settings.max_positions) {}

  [[nodiscard]] std::optional<std::int64_t> most_positions() const override { return horizon_; }

 protected:
  [[nodiscard]] at::Tensor feature(const at::Tensor& x, const Of& of,
                                   const ForwardContext&) override {
    const std::int64_t end = of.first + x.size(1);
    if (end > horizon_) {
      throw UserError("cosformer: the horizon is " + std::to_string(horizon_) +
                      " positions (horizon, or data.tokens_per_sample in training), " +
                      std::to_string(end) + " are needed");
    }
    const at::Tensor angle =
        (at::arange(of.first + 1, end + 1, at::device(x.device()).dtype(at::kDouble)) *
         (std::numbers::pi / 2 / static_cast<double>(horizon_)))
            .view({1, -1, 1, 1});
    const at::Tensor positive = at::relu(x);
    return at::cat({positive * angle.sin().to(at::kFloat), positive * angle.cos().to(at::kFloat)},
                   -1);
  }

 private:
  std::int64_t horizon_;
};

std::shared_ptr<Attention> CosformerAttentionConfig::make(const AttentionSettings& settings) const {
  return std::make_shared<CosformerAttention>(*this, settings);
}

[[maybe_unused]] const bool kAdded = add_attention<CosformerAttentionConfig>();

}  // namespace
}  // namespace transnormer
