// Performer: softmax attention by positive random features. With y = x dh^-1/4 (after LRPE) and W
// of `features` random directions a head, phi(x) = exp(W y - |y|^2 / 2), divided by the sum of
// weights. Choromanski et al. 2021.
//
// The published code adds 1e-4 to the features, bounds the divisor below by 1e-2, which shrinks
// outputs, and takes one maximum over all keys, later ones too. Here phi is given by its logarithm
// (ops/attention/logarithms.h), so that weights are exact and positive at any size.
#include <ATen/ATen.h>

#include <cmath>

#include "config/fields.h"
#include "model/attention/feature_attention.h"
#include "model/attention/random_features.h"
#include "model/attention/registry.h"

namespace transnormer {
namespace {

struct PerformerAttentionConfig {
  static constexpr const char* kName = "performer";
  static constexpr const char* kHelp = "Softmax attention by positive random features";
  static constexpr const char* kFormula = "phi(q)·phi(k) by their sum, phi(x) = exp(Wx - |x|^2/2)";
  static constexpr const char* kCost = "O(n)";
  static constexpr Abilities kAbilities{};

  std::int64_t features = 64;
  bool redraw = true;

  void visit(FieldVisitor& visitor) {
    visitor.integer({"features", "Random directions of a head"}, features, {1, kMaxSize});
    visitor.flag({"redraw", "Training draws them anew for each update"}, redraw);
  }
  [[nodiscard]] std::shared_ptr<Attention> make(const AttentionSettings& settings) const;
  bool operator==(const PerformerAttentionConfig&) const = default;
};

// As in the published language model: all by LibTorch's own.
ProjectionStarts framework_starts() {
  ProjectionStarts starts(1);
  starts.q = starts.k = starts.v = starts.out = {};
  return starts;
}

class PerformerAttention : public FeatureAttention, public Initializable {
 public:
  PerformerAttention(const PerformerAttentionConfig& config, const AttentionSettings& settings)
      : FeatureAttention(settings, framework_starts(), config.features,
                         {.floor = 0, .logarithms = true}),
        directions_(*this, {settings.heads, config.features, settings.head_dim()},
                    Directions::orthogonal, config.redraw, settings),
        scale_(std::pow(static_cast<double>(settings.head_dim()), -0.25)) {}

  [[nodiscard]] bool can_be_captured() const override { return directions_.can_be_captured(); }
  void initialize(const Initializer& initializer, const std::string& prefix) override {
    directions_.initialize(initializer, prefix);
  }
  // With the products with the directions.
  [[nodiscard]] double flops_per_token(std::int64_t length) const override {
    return 2 * FeatureAttention::flops_per_token(length);
  }

 protected:
  // A query's |y|^2 / 2 is lost in the division.
  [[nodiscard]] at::Tensor feature(const at::Tensor& x, const Of& of,
                                   const ForwardContext& context) override {
    const at::Tensor directions = directions_.get(context).mT() * scale_;
    const at::Tensor along = at::matmul(x.transpose(1, 2), directions).transpose(1, 2);
    return of.query ? along : along - x.square().sum(-1, true) * (scale_ * scale_ / 2);
  }

 private:
  RandomFeatures directions_;
  double scale_;
};

std::shared_ptr<Attention> PerformerAttentionConfig::make(const AttentionSettings& settings) const {
  return std::make_shared<PerformerAttention>(*this, settings);
}

[[maybe_unused]] const bool kAdded = add_attention<PerformerAttentionConfig>();

}  // namespace
}  // namespace transnormer
