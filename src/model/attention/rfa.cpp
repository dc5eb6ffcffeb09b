// Random feature attention: a Gaussian kernel of normalised queries and keys by sines and cosines.
// With y = sigma * x / (|x| + 1e-3) (after LRPE; sigma learned, a number for each head and feature,
// from 1) and W of D random directions a head, phi(x) = D^-1/2 [sin(W y); cos(W y)], divided by the
// sum of weights, at least 1e-2. Peng et al. 2021, without its gate.
//
// The published code bounds the divisor by 1, which shrinks outputs, and draws from a file of 500
// sets.
#include <ATen/ATen.h>

#include <cmath>

#include "config/fields.h"
#include "model/attention/feature_attention.h"
#include "model/attention/random_features.h"
#include "model/attention/registry.h"

namespace transnormer {
namespace {

struct RfaAttentionConfig {
  static constexpr const char* kName = "rfa";
  static constexpr const char* kHelp = "Gaussian kernel by random sines and cosines";
  static constexpr const char* kFormula =
      "phi(q)·phi(k) by their sum, phi(x) = [sin(Wx); cos(Wx)] of unit vectors";
  static constexpr const char* kCost = "O(n)";
  static constexpr Abilities kAbilities{};

  std::int64_t features = 64;
  bool redraw = true;

  void visit(FieldVisitor& visitor) {
    visitor.integer({"features", "Random directions of a head; each gives a sine and a cosine"},
                    features, {1, kMaxSize});
    visitor.flag({"redraw", "Training draws them anew for each update"}, redraw);
  }
  [[nodiscard]] std::shared_ptr<Attention> make(const AttentionSettings& settings) const;
  bool operator==(const RfaAttentionConfig&) const = default;
};

class RfaAttention : public FeatureAttention, public Initializable {
 public:
  RfaAttention(const RfaAttentionConfig& config, const AttentionSettings& settings)
      : FeatureAttention(settings, std::sqrt(0.5), 2 * config.features, {.floor = 1e-2}),
        directions_(*this, {settings.heads, config.features, settings.head_dim()},
                    Directions::independent, config.redraw, settings),
        sigma_(register_parameter("sigma", at::empty({settings.heads, settings.head_dim()},
                                                     at::device(settings.device)))),
        scale_(1 / std::sqrt(static_cast<double>(config.features))) {}

  [[nodiscard]] bool can_be_captured() const override { return directions_.can_be_captured(); }
  void initialize(const Initializer& initializer, const std::string& prefix) override {
    const at::NoGradGuard no_gradients;
    directions_.initialize(initializer, prefix);
    sigma_.fill_(1);
  }
  // With the products with the directions.
  [[nodiscard]] double flops_per_token(std::int64_t length) const override {
    return 1.5 * FeatureAttention::flops_per_token(length);
  }

 protected:
  [[nodiscard]] at::Tensor feature(const at::Tensor& x, const Of&,
                                   const ForwardContext& context) override {
    // Differentiable where x is zero.
    const at::Tensor length = (x * x).sum(-1, true).clamp_min(1e-24).sqrt();
    const at::Tensor y = x / (length + 1e-3) * sigma_;
    const at::Tensor angles =
        at::matmul(y.transpose(1, 2), directions_.get(context).mT()).transpose(1, 2);
    return at::cat({angles.sin(), angles.cos()}, -1) * scale_;
  }

 private:
  RandomFeatures directions_;
  at::Tensor sigma_;
  double scale_;
};

std::shared_ptr<Attention> RfaAttentionConfig::make(const AttentionSettings& settings) const {
  return std::make_shared<RfaAttention>(*this, settings);
}

[[maybe_unused]] const bool kAdded = add_attention<RfaAttentionConfig>();

}  // namespace
}  // namespace transnormer
