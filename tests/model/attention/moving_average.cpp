// An attention of the tests in one file: every token takes the mean of the values of the last
// `window` tokens. Shows what an attention needs, and nothing else knows of it.
#include <ATen/ATen.h>

#include <algorithm>

#include "config/fields.h"
#include "model/attention/registry.h"
#include "model/attention/visible_mean.h"

namespace transnormer::test {
namespace {

struct MovingAverageConfig {
  static constexpr const char* kName = "moving_average";
  static constexpr const char* kHelp = "The mean of the last values";
  static constexpr const char* kFormula = "mean of the last w values";
  static constexpr const char* kCost = "O(n)";
  static constexpr Abilities kAbilities{};

  std::int64_t window = 4;

  void visit(FieldVisitor& v) {
    v.integer({"window", "Length of the mean", OnResume::refuse, "tokens"}, window, {1, kMaxSize});
  }
  [[nodiscard]] std::shared_ptr<Attention> make(const AttentionSettings& settings) const;
  bool operator==(const MovingAverageConfig&) const = default;
};

// The last values, [batch, up to window - 1, dim].
struct LastValues : AttentionState {
  [[nodiscard]] std::int64_t bytes() const override {
    return values.defined() ? static_cast<std::int64_t>(values.nbytes()) : 0;
  }
  at::Tensor values;
};

class MovingAverage : public Attention {
 public:
  MovingAverage(const MovingAverageConfig& config, const AttentionSettings& settings)
      : window_(config.window),
        dim_(settings.dim),
        value_(register_module(
            "v_proj", std::make_shared<Linear>(dim_, dim_, LinearStart{}, settings.device))) {}

  [[nodiscard]] at::Tensor forward(const at::Tensor& x, const ForwardContext& context,
                                   AttentionState* state) override {
    at::Tensor values = value_->forward(x, context.compute);
    auto* last = static_cast<LastValues*>(state);
    if (last != nullptr && last->values.defined()) {
      values = at::cat({last->values, values}, 1);
    }
    const at::Tensor weights = visible_mean(values, context.visibility, window_);
    const at::Tensor means = at::matmul(weights.to(values.scalar_type()), values);
    if (last != nullptr) {
      const std::int64_t kept = std::min(values.size(1), window_ - 1);
      last->values = values.narrow(1, values.size(1) - kept, kept).clone();
    }
    return means.narrow(1, means.size(1) - x.size(1), x.size(1));
  }

  [[nodiscard]] at::Tensor weights(const at::Tensor& x, const ForwardContext& context) override {
    return visible_mean(x, context.visibility, window_).to(at::kFloat).unsqueeze(1);
  }
  [[nodiscard]] StateBytes state_bytes(at::ScalarType compute) const override {
    return {.fixed = static_cast<double>((window_ - 1) * dim_) *
                     static_cast<double>(c10::elementSize(compute))};
  }

  [[nodiscard]] std::unique_ptr<AttentionState> make_state(std::int64_t) const override {
    return std::make_unique<LastValues>();
  }
  [[nodiscard]] double flops_per_token(std::int64_t length) const override {
    return 2 * static_cast<double>(dim_ * std::min(window_, length));
  }
  [[nodiscard]] double kept_bytes_per_token(at::ScalarType compute) const override {
    return static_cast<double>(dim_) * static_cast<double>(c10::elementSize(compute));
  }
  [[nodiscard]] std::vector<ParameterGroup> groups() const override {
    return {{"v_proj", value_->parameters()}};
  }

 private:
  std::int64_t window_;
  std::int64_t dim_;
  std::shared_ptr<Linear> value_;
};

std::shared_ptr<Attention> MovingAverageConfig::make(const AttentionSettings& settings) const {
  return std::make_shared<MovingAverage>(*this, settings);
}

[[maybe_unused]] const bool kAdded = add_attention<MovingAverageConfig>();

}  // namespace
}  // namespace transnormer::test
