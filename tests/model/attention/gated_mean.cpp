// A block of the tests: a gated unit with the mean of the past inside and no feed-forward part,
// x + drop(out(silu(gate(n)) * mean(value(n)))) with n the norm of x.
#include <ATen/ATen.h>

#include <limits>

#include "config/fields.h"
#include "model/attention/registry.h"
#include "model/attention/visible_mean.h"
#include "model/norm.h"
#include "ops/residual.h"

namespace transnormer::test {
namespace {

struct GatedMeanConfig {
  static constexpr const char* kName = "gated_mean";
  static constexpr const char* kHelp = "A gated unit with the mean of the past, no feed-forward";
  static constexpr const char* kFormula = "mean of the past, gated";
  static constexpr const char* kCost = "O(n)";
  static constexpr Abilities kAbilities{.bidirectional = false};

  std::int64_t expansion = 2;

  void visit(FieldVisitor& v) {
    v.integer({"expansion", "Width of the unit in widths of the model"}, expansion, {1, 64});
  }
  [[nodiscard]] std::shared_ptr<Block> make(const BlockSettings& settings) const;
  bool operator==(const GatedMeanConfig&) const = default;
};

struct RunningMean : AttentionState {
  [[nodiscard]] std::int64_t bytes() const override {
    return static_cast<std::int64_t>(sum.nbytes());
  }
  at::Tensor sum;  // of the values, [batch, 1, width]
  std::int64_t count = 0;
};

class GatedMean : public Block {
 public:
  GatedMean(const GatedMeanConfig& config, const BlockSettings& settings)
      : layer_(settings.layer),
        dim_(settings.model.dim),
        width_(config.expansion * settings.model.dim),
        dropout_(settings.model.dropout),
        norm_(register_module(
            "norm", std::make_shared<Norm>(settings.model.norm, dim_, settings.model.norm_eps,
                                           settings.device))),
        gate_(linear("gate_proj", dim_, width_, settings)),
        value_(linear("value_proj", dim_, width_, settings)),
        out_(linear("out_proj", width_, dim_, settings)) {}

  [[nodiscard]] at::Tensor forward(const at::Tensor& x, const ForwardContext& context,
                                   AttentionState* state) override {
    const at::Tensor n = norm_->forward(x, context.compute);
    const at::Tensor values = value_->forward(n, context.compute).to(at::kFloat);
    const at::Tensor mean = state == nullptr ? whole(values, context)
                                             : go_on(values, static_cast<RunningMean&>(*state));
    const at::Tensor gated =
        at::silu(gate_->forward(n, context.compute)) * mean.to(context.compute);
    return ops::residual(x, out_->forward(gated, context.compute),
                         {context.training ? dropout_ : 0,
                          context.dropout_key(layer_, DropoutSite::attention, x.size(-1))});
  }

  // Each token takes the mean of the values up to it.
  [[nodiscard]] at::Tensor attention_weights(const at::Tensor& x, const ForwardContext&) override {
    const std::int64_t time = x.size(1);
    const at::Tensor seen = at::ones({time, time}, at::kFloat).tril();
    return (seen / seen.sum(1, true)).expand({x.size(0), 1, time, time});
  }
  [[nodiscard]] StateBytes state_bytes(at::ScalarType) const override {
    return {.fixed = 4 * static_cast<double>(width_)};
  }

  [[nodiscard]] std::unique_ptr<AttentionState> make_state(std::int64_t batch) const override {
    auto state = std::make_unique<RunningMean>();
    state->sum = at::zeros({batch, 1, width_});
    return state;
  }
  [[nodiscard]] double kept_bytes_per_token(at::ScalarType) const override {
    return 4 * static_cast<double>(dim_ + 3 * width_);
  }
  [[nodiscard]] std::vector<ParameterGroup> groups() const override {
    return {{"gate", gate_->parameters()},
            {"value", value_->parameters()},
            {"out", out_->parameters()}};
  }

 private:
  std::shared_ptr<Linear> linear(const char* name, std::int64_t in, std::int64_t out,
                                 const BlockSettings& settings) {
    return register_module(name, std::make_shared<Linear>(in, out, LinearStart{}, settings.device));
  }
  static at::Tensor whole(const at::Tensor& values, const ForwardContext& context) {
    return at::matmul(
        visible_mean(values, context.visibility, std::numeric_limits<std::int64_t>::max()), values);
  }
  static at::Tensor go_on(const at::Tensor& values, RunningMean& state) {
    const at::Tensor sums = state.sum + values.cumsum(1);
    const at::Tensor counts =
        at::arange(state.count + 1, state.count + values.size(1) + 1, at::kFloat);
    state.sum = sums.narrow(1, values.size(1) - 1, 1).clone();
    state.count += values.size(1);
    return sums / counts.view({1, -1, 1});
  }

  std::int64_t layer_;
  std::int64_t dim_;
  std::int64_t width_;
  double dropout_;
  std::shared_ptr<Norm> norm_;
  std::shared_ptr<Linear> gate_;
  std::shared_ptr<Linear> value_;
  std::shared_ptr<Linear> out_;
};

std::shared_ptr<Block> GatedMeanConfig::make(const BlockSettings& settings) const {
  return std::make_shared<GatedMean>(*this, settings);
}

[[maybe_unused]] const bool kAdded = add_attention<GatedMeanConfig>();

}  // namespace
}  // namespace transnormer::test
