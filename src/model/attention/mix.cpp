// Two attentions in one layer (Qin et al. 2022, table 12), each with heads of half the width: d to
// d/2 for queries, keys and values, d/2 to d out. parallel: their mean. sequential: the second
// takes its queries from the first's output, keys and values from the layer's input.
#include <algorithm>
#include <array>
#include <optional>

#include "config/fields.h"
#include "model/attention/registry.h"
#include "model/repeatable_state.h"

namespace transnormer {
namespace {

enum class MixMode { parallel, sequential };
constexpr std::array kModeNames{Named{MixMode::parallel, "parallel"},
                                Named{MixMode::sequential, "sequential"}};

using PartConfig = UnionOf<&attention_parts>;

struct MixAttentionConfig {
  static constexpr const char* kName = "mix";
  static constexpr const char* kHelp = "Two attentions in one layer, side by side or in a row";
  static constexpr const char* kFormula = "mean of two, or one on the other's queries";
  static constexpr const char* kCost = "that of its parts";
  static constexpr Abilities kAbilities{.part = false, .separate_queries = false};

  PartConfig first = "diag";
  PartConfig second = "norm";
  MixMode mode = MixMode::parallel;

  void visit(FieldVisitor& visitor) {
    const auto part = [&](const Field& field, PartConfig& value) {
      visitor.section(field, [&] { visitor.alternatives({"attention", field.help}, value); });
    };
    part({"first", "Attention of the first part"}, first);
    part({"second", "Attention of the second part"}, second);
    visit_choice(visitor,
                 {"mode",
                  "parallel: the mean of both; sequential: the second's queries are made of "
                  "the first's output"},
                 mode, kModeNames);
  }
  [[nodiscard]] std::vector<AttentionPart> parts() const {
    return {{"first", &first}, {"second", &second}};
  }
  [[nodiscard]] std::vector<std::string> faults(const AttentionSettings& settings) const;
  [[nodiscard]] std::shared_ptr<Attention> make(const AttentionSettings& settings) const;
  bool operator==(const MixAttentionConfig&) const = default;
};

AttentionSettings settings_of_part(const PartConfig& config, const AttentionSettings& settings,
                                   bool second) {
  AttentionSettings part = settings;
  part.inner = settings.inner_dim() / 2;
  part.random_key = settings.random_key + (second ? settings.layers : 0);
  part.lrpe = settings.lrpe && abilities(config).lrpe;
  return part;
}

struct BothStates : AttentionState, RepeatableState {
  [[nodiscard]] std::int64_t bytes() const override { return first->bytes() + second->bytes(); }
  [[nodiscard]] bool can_repeat() const override {
    return transnormer::can_repeat(*first) && transnormer::can_repeat(*second);
  }
  void repeat(std::int64_t times) override {
    transnormer::repeat(*first, times);
    transnormer::repeat(*second, times);
  }
  std::unique_ptr<AttentionState> first;
  std::unique_ptr<AttentionState> second;
};

class MixAttention : public Attention {
 public:
  MixAttention(const MixAttentionConfig& config, const AttentionSettings& settings)
      : sequential_(config.mode == MixMode::sequential),
        first_(register_module(
            "first",
            make_attention(config.first, settings_of_part(config.first, settings, false)))),
        second_(register_module(
            "second",
            make_attention(config.second, settings_of_part(config.second, settings, true)))) {}

  [[nodiscard]] at::Tensor forward(const at::Tensor& x, const ForwardContext& context,
                                   AttentionState* state) override {
    auto* const both = static_cast<BothStates*>(state);
    const at::Tensor a = first_->forward(x, context, both == nullptr ? nullptr : both->first.get());
    AttentionState* const behind = both == nullptr ? nullptr : both->second.get();
    return sequential_ ? second_->forward_from(a, x, context, behind)
                       : (a + second_->forward(x, context, behind)) / 2;
  }

  // parallel: the mean of the heads of both; sequential: those of the second part.
  [[nodiscard]] at::Tensor weights(const at::Tensor& x, const ForwardContext& context) override {
    const at::NoGradGuard no_gradients;
    if (sequential_) {
      return second_->weights_from(first_->forward(x, context, nullptr), x, context);
    }
    return (first_->weights(x, context) + second_->weights(x, context)) / 2;
  }

  [[nodiscard]] std::unique_ptr<AttentionState> make_state(std::int64_t batch) const override {
    auto state = std::make_unique<BothStates>();
    state->first = first_->make_state(batch);
    state->second = second_->make_state(batch);
    return state;
  }
  [[nodiscard]] StateBytes state_bytes(at::ScalarType compute) const override {
    const StateBytes a = first_->state_bytes(compute);
    const StateBytes b = second_->state_bytes(compute);
    return {.fixed = a.fixed + b.fixed, .per_token = a.per_token + b.per_token};
  }
  [[nodiscard]] bool can_be_captured() const override {
    return first_->can_be_captured() && second_->can_be_captured();
  }
  [[nodiscard]] std::optional<std::int64_t> most_positions() const override {
    const std::optional<std::int64_t> a = first_->most_positions(), b = second_->most_positions();
    return a && b ? std::min(*a, *b) : a ? a : b;
  }
  [[nodiscard]] double flops_per_token(std::int64_t length) const override {
    return first_->flops_per_token(length) + second_->flops_per_token(length);
  }
  [[nodiscard]] double kept_bytes_per_token(at::ScalarType compute) const override {
    return first_->kept_bytes_per_token(compute) + second_->kept_bytes_per_token(compute);
  }
  [[nodiscard]] std::vector<ParameterGroup> groups() const override {
    std::vector<ParameterGroup> groups;
    for (const auto& [name, part] : {std::pair{"first.", first_}, std::pair{"second.", second_}}) {
      for (ParameterGroup& group : part->groups()) {
        groups.push_back({name + group.name, std::move(group.parameters)});
      }
    }
    return groups;
  }

 private:
  bool sequential_;
  std::shared_ptr<Attention> first_;
  std::shared_ptr<Attention> second_;
};

std::vector<std::string> MixAttentionConfig::faults(const AttentionSettings& settings) const {
  std::vector<std::string> faults;
  const auto add = [&](const char* key, const PartConfig& config, bool behind) {
    for (const std::string& fault : faults_of(config, settings_of_part(config, settings, behind))) {
      faults.push_back(std::string(key) + "." + fault);
    }
  };
  if (settings.inner_dim() % (2 * settings.heads) != 0) {
    return {"attention: expected model.dim to be a multiple of 2 model.heads (" +
            std::to_string(2 * settings.heads) +
            ") for \"mix\", whose parts have heads of half the "
            "width, got " +
            std::to_string(settings.inner_dim())};
  }
  add("first", first, false);
  add("second", second, true);
  if (mode == MixMode::sequential && !transnormer::abilities(second).separate_queries) {
    faults.push_back(
        "second: the attention \"" + second.name() +
        "\" takes queries and keys from one place; set mode to \"parallel\", or choose "
        "another one");
  }
  return faults;
}

std::shared_ptr<Attention> MixAttentionConfig::make(const AttentionSettings& settings) const {
  return std::make_shared<MixAttention>(*this, settings);
}

[[maybe_unused]] const bool kAdded = add_attention<MixAttentionConfig>();

}  // namespace
}  // namespace transnormer
