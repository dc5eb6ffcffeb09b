// Efficient attention: softmax(q) over the features, softmax(k) over the visible tokens for each
// feature, no scale. Shen et al. 2021; causal in O(n): with Z_t the sum of e^k up to t,
// o_t = sum_s (softmax(q_t) / Z_t) . e^{k_s} v_s, all in logarithms.
#include <ATen/ATen.h>

#include <cmath>
#include <limits>

#include "config/fields.h"
#include "model/attention/linear_state.h"
#include "model/attention/registry.h"
#include "ops/attention/groups.h"
#include "ops/attention/logarithms.h"

namespace transnormer {
namespace {

struct EfficientAttentionConfig {
  static constexpr const char* kName = "efficient";
  static constexpr const char* kHelp = "Softmax of queries over features, of keys over tokens";
  static constexpr const char* kFormula = "softmax_d(q)·softmax_n(k)";
  static constexpr const char* kCost = "O(n)";
  static constexpr Abilities kAbilities{.lrpe = false};

  void visit(FieldVisitor&) {}
  [[nodiscard]] std::shared_ptr<Attention> make(const AttentionSettings& settings) const;
  bool operator==(const EfficientAttentionConfig&) const = default;
};

struct EfficientState : LinearState {
  using LinearState::LinearState;
  [[nodiscard]] std::int64_t bytes() const override {
    return LinearState::bytes() + static_cast<std::int64_t>(logsum.nbytes());
  }
  void repeat(std::int64_t times) override {
    LinearState::repeat(times);
    repeat_row(logsum, times);
  }
  at::Tensor logsum;  // log Z, [batch, 1, heads, head_dim]
};

class EfficientAttention : public ProjectedAttention {
 public:
  explicit EfficientAttention(const AttentionSettings& settings)
      : ProjectedAttention(settings, usual_heads(settings), std::sqrt(0.5), NormKind::none) {}

  [[nodiscard]] std::unique_ptr<AttentionState> make_state(std::int64_t batch) const override {
    const HeadShape& s = shape();
    auto state = std::make_unique<EfficientState>(ops::LinearAttentionSums(
        batch, s.heads, s.key_dim, s.value_dim, {.logarithms = true}, settings().device));
    state->logsum =
        at::full({batch, 1, s.heads, s.key_dim}, ops::kNoFeature, at::device(settings().device));
    return state;
  }
  [[nodiscard]] StateBytes state_bytes(at::ScalarType) const override {
    return {.fixed = 4 * static_cast<double>(shape().keys() * (shape().value_dim + 2))};
  }
  [[nodiscard]] double flops_per_token(std::int64_t) const override {
    return 4 * static_cast<double>(shape().keys() * shape().value_dim);
  }
  [[nodiscard]] double kept_bytes_per_token(at::ScalarType compute) const override {
    return ProjectedAttention::kept_bytes_per_token(compute) +
           4 * static_cast<double>(4 * shape().keys() + 2 * shape().values());
  }

 protected:
  [[nodiscard]] at::Tensor attend(const Projected& in, const ForwardContext& context,
                                  AttentionState* given) override {
    const at::ScalarType type = in.q.scalar_type();
    if (given != nullptr) {
      auto& state = static_cast<EfficientState&>(*given);
      const at::Tensor k = in.k.to(at::kFloat);
      const at::Tensor sums =
          at::logcumsumexp(at::cat({state.logsum, k}, 1), 1).narrow(1, 1, k.size(1));
      state.logsum = sums.narrow(1, k.size(1) - 1, 1).clone();
      return ops::linear_attention_step(log_softmax(in.q) - sums, k, in.v, state.sums,
                                        {.logarithms = true})
          .to(type);
    }
    const bool causal = context.visibility.causal;
    return ops::by_rows(context.visibility, {in.q, in.k, in.v},
                        [&](const std::vector<at::Tensor>& x, const at::Tensor& lengths) {
                          return of_rows(x, lengths, causal);
                        })
        .to(type);
  }

 private:
  static at::Tensor log_softmax(const at::Tensor& q) {
    return at::log_softmax(q.to(at::kFloat), -1);
  }

  static at::Tensor of_rows(const std::vector<at::Tensor>& x, const at::Tensor& lengths,
                            bool causal) {
    at::Tensor k = x[1].to(at::kFloat);
    if (const at::Tensor real = ops::is_token(lengths, k.size(1)); real.defined()) {
      k = k.masked_fill(real.logical_not().view({-1, k.size(1), 1, 1}), ops::kNoFeature);
    }
    const at::Tensor sums = causal ? at::logcumsumexp(k, 1) : at::logsumexp(k, 1, true);
    return ops::linear_attention(log_softmax(x[0]) - sums, k, x[2],
                                 {.visibility = {.causal = causal}, .logarithms = true});
  }
};

std::shared_ptr<Attention> EfficientAttentionConfig::make(const AttentionSettings& settings) const {
  return std::make_shared<EfficientAttention>(settings);
}

[[maybe_unused]] const bool kAdded = add_attention<EfficientAttentionConfig>();

}  // namespace
}  // namespace transnormer
