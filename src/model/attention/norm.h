// The settings of NormAttention: linear attention without a denominator, its output normalised.
#pragma once

#include <memory>

#include "config/config.h"
#include "config/fields.h"
#include "model/attention/abilities.h"

namespace transnormer {

class Attention;
struct AttentionSettings;

struct NormAttentionConfig {
  static constexpr const char* kName = "norm";
  static constexpr const char* kHelp =
      "Linear attention without a denominator, its output normalised (NormAttention)";
  static constexpr const char* kFormula = "norm(phi(q)·phi(k) v)";
  static constexpr const char* kCost = "O(n)";
  static constexpr Abilities kAbilities{.sequence_parallel = true};

  FeatureMap kernel = FeatureMap::elu1;
  NormKind output_norm = NormKind::srms;

  void visit(FieldVisitor& visitor);
  [[nodiscard]] Weighting weighting() const { return Weighting::unnormalised; }
  [[nodiscard]] std::shared_ptr<Attention> make(const AttentionSettings& settings) const;
  bool operator==(const NormAttentionConfig&) const = default;
};

}  // namespace transnormer
