// src/model/attention/squared.cpp, and its name under ALWAYS in src/model/CMakeLists.txt
#include <ATen/ATen.h>

#include "config/fields.h"
#include "model/attention/feature_attention.h"
#include "model/attention/registry.h"

namespace transnormer {
namespace {

struct SquaredConfig {
  static constexpr const char* kName = "squared";
  static constexpr const char* kHelp = "Linear attention of squared queries and keys";
  static constexpr const char* kFormula = "q^2·k^2, by their sum";
  static constexpr const char* kCost = "O(n)";
  static constexpr Abilities kAbilities{};

  double floor = 1e-6;

  void visit(FieldVisitor& v) { v.number({"floor", "Least divisor"}, floor, {.min = 0, .max = 1}); }
  [[nodiscard]] std::shared_ptr<Attention> make(const AttentionSettings& settings) const;
  bool operator==(const SquaredConfig&) const = default;
};

class Squared : public FeatureAttention {
 public:
  Squared(const SquaredConfig& config, const AttentionSettings& settings)
      : FeatureAttention(settings, /*gain=*/1, settings.head_dim(), {.floor = config.floor}) {}

 protected:
  at::Tensor feature(const at::Tensor& x, const Of&, const ForwardContext&) override {
    return x.square();
  }
};

std::shared_ptr<Attention> SquaredConfig::make(const AttentionSettings& settings) const {
  return std::make_shared<Squared>(*this, settings);
}

[[maybe_unused]] const bool kAdded = add_attention<SquaredConfig>();

}  // namespace
}  // namespace transnormer
