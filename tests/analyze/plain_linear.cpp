#include "analyze/plain_linear.h"

#include <ATen/ATen.h>

namespace transnormer::test {
namespace {

class PlainLinear : public ProjectedAttention {
 public:
  PlainLinear(bool denominator, const AttentionSettings& settings)
      : ProjectedAttention(settings, usual_heads(settings), 1, NormKind::none),
        denominator_(denominator) {}

  [[nodiscard]] std::unique_ptr<AttentionState> make_state(std::int64_t) const override {
    return nullptr;
  }
  [[nodiscard]] StateBytes state_bytes(at::ScalarType) const override { return {}; }
  [[nodiscard]] double flops_per_token(std::int64_t) const override { return 0; }

 protected:
  [[nodiscard]] at::Tensor attend(const Projected& in, const ForwardContext& context,
                                  AttentionState*) override {
    const Projected met = scored(in, context);
    at::Tensor weights = at::matmul(met.q.transpose(1, 2), met.k.permute({0, 2, 3, 1})).tril();
    if (denominator_) {
      weights = weights / weights.sum(-1, true);
    }
    return at::matmul(weights, in.v.transpose(1, 2)).transpose(1, 2).contiguous();
  }
  [[nodiscard]] Projected scored(const Projected& in, const ForwardContext&) const override {
    return {.q = 1 + at::elu(in.q), .k = 1 + at::elu(in.k), .v = in.v, .x = in.x};
  }

 private:
  bool denominator_;
};

}  // namespace

std::shared_ptr<Attention> PlainLinearConfig::make(const AttentionSettings& settings) const {
  return std::make_shared<PlainLinear>(denominator, settings);
}

namespace {
[[maybe_unused]] const bool kAdded = add_attention<PlainLinearConfig>();
}  // namespace

}  // namespace transnormer::test
