// Linear attention in its plain quadratic form, with a setting `denominator`.
#pragma once

#include "config/fields.h"
#include "model/attention/registry.h"

namespace transnormer::test {

struct PlainLinearConfig {
  static constexpr const char* kName = "plain_linear";
  static constexpr const char* kHelp = "Linear attention by its matrix";
  static constexpr const char* kFormula = "phi(q)·phi(k)";
  static constexpr const char* kCost = "O(n^2)";
  static constexpr Abilities kAbilities{.decodes = false};

  bool denominator = true;

  void visit(FieldVisitor& visitor) {
    visitor.flag({"denominator", "Whether weights are divided by their sum"}, denominator);
  }
  [[nodiscard]] Weighting weighting() const {
    return denominator ? Weighting::linear : Weighting::unnormalised;
  }
  [[nodiscard]] std::shared_ptr<Attention> make(const AttentionSettings& settings) const;
  bool operator==(const PlainLinearConfig&) const = default;
};

}  // namespace transnormer::test
