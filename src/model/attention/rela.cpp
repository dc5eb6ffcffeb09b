// Rectified linear attention: the scores' positive part without a sum, its output normalised. Zhang
// et al. 2021, "Sparse Attention with Linear Units".
#include <ATen/ATen.h>

#include <cmath>
#include <limits>

#include "config/fields.h"
#include "model/attention/key_value_cache.h"
#include "model/attention/registry.h"
#include "ops/attention/block_attention.h"
#include "ops/norm.h"

namespace transnormer {
namespace {

struct RelaAttentionConfig {
  static constexpr const char* kName = "rela";
  static constexpr const char* kHelp = "The positive part of the scores, its output normalised";
  static constexpr const char* kFormula = "norm(relu(q·k / sqrt(dh)))";
  static constexpr const char* kCost = "O(n^2)";
  static constexpr Abilities kAbilities{};

  bool gated = true;

  void visit(FieldVisitor& visitor) {
    visitor.flag({"gated",
                  "Norm of the merged heads with a gain and a gate, scale norm(x) sigmoid(gate x); "
                  "else scale norm(x)"},
                 gated);
  }
  [[nodiscard]] std::shared_ptr<Attention> make(const AttentionSettings& settings) const;
  bool operator==(const RelaAttentionConfig&) const = default;
};

// Masked scores become 0 and then go through ReLU, so that the future weighs nothing (the published
// causal form masks the scores and leaves out ReLU).
class RelaAttention : public ProjectedAttention, public Initializable {
 public:
  RelaAttention(const RelaAttentionConfig& config, const AttentionSettings& settings)
      : ProjectedAttention(settings, usual_heads(settings), 1, NormKind::none),
        scale_(1 / std::sqrt(static_cast<double>(settings.head_dim()))),
        gain_(register_parameter("scale", one_a_number(settings))) {
    if (config.gated) {
      gate_ = register_parameter("gate", one_a_number(settings));
    }
  }

  void initialize(const Initializer&, const std::string&) override {
    const at::NoGradGuard no_gradients;
    gain_.fill_(1);
    if (gate_.defined()) {
      gate_.fill_(1);
    }
  }

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

  [[nodiscard]] std::vector<ParameterGroup> groups() const override {
    std::vector<ParameterGroup> all = ProjectedAttention::groups();
    all.push_back({"gated_norm", parameters(/*recurse=*/false)});
    return all;
  }

 protected:
  // In fp32 where the products are in half: a sum of thousands of positive weights, which only the
  // norm behind it tames, is beyond half's largest number.
  [[nodiscard]] at::Tensor attend(const Projected& in, const ForwardContext& context,
                                  AttentionState* state) override {
    const auto summable = [](const at::Tensor& x) {
      return x.scalar_type() == at::kHalf ? x.to(at::kFloat) : x;
    };
    const ops::Encoding encoded = encoding(context);
    if (state == nullptr) {
      return ops::block_attention(
          summable(in.q), summable(in.k), summable(in.v),
          {.score = ScoreKind::relu,
           .block = 0,
           .scale = scale_,
           .dropout = context.training ? settings().dropout : 0,
           .dropout_key = context.dropout_key(settings().random_key, DropoutSite::attention_weights,
                                              settings().heads * in.q.size(1)),
           .encoding = encoded,
           .visibility = context.visibility});
    }
    auto& cache = static_cast<KeyValueCache&>(*state);
    cache.append(ops::encode(in.k, encoded), in.v);
    return ops::attention_step(ops::encode(summable(in.q), encoded), cache.keys(), cache.values(),
                               ScoreKind::relu, scale_);
  }

  [[nodiscard]] at::Tensor finish(const at::Tensor& merged, const at::Tensor&,
                                  const ForwardContext& context) override {
    const double eps = settings().norm_eps;
    return gate_.defined() ? ops::gated_srms_norm(merged, gain_, gate_, eps, context.compute)
                           : ops::rms_norm(merged, gain_, eps, context.compute);
  }

 private:
  static at::Tensor one_a_number(const AttentionSettings& settings) {
    return at::empty({settings.inner_dim()}, at::device(settings.device));
  }

  double scale_;
  at::Tensor gain_;
  at::Tensor gate_;  // undefined without
};

std::shared_ptr<Attention> RelaAttentionConfig::make(const AttentionSettings& settings) const {
  return std::make_shared<RelaAttention>(*this, settings);
}

[[maybe_unused]] const bool kAdded = add_attention<RelaAttentionConfig>();

}  // namespace
}  // namespace transnormer
