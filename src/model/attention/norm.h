// The settings of NormAttention: linear attention without a denominator, its output normalised;
// with the fixed decay and the output gate of its successor, TransNormerLLM, if wanted. Qin et al.
// 2022, 2023.
#pragma once

#include <memory>

#include "config/config.h"
#include "config/fields.h"
#include "model/attention/abilities.h"

namespace transnormer {

class Attention;
struct AttentionSettings;

enum class DecayKind { none, fixed };
enum class GateKind { none, linear, silu, sigmoid };

struct NormAttentionConfig {
  static constexpr const char* kName = "norm";
  static constexpr const char* kHelp =
      "Linear attention without a denominator, its output normalised (NormAttention)";
  static constexpr const char* kFormula = "phi(q)·phi(k), then a norm of the output";
  static constexpr const char* kCost = "O(n)";
  static constexpr Abilities kAbilities{.sequence_parallel = true};

  FeatureMap kernel = FeatureMap::elu1;
  NormKind output_norm = NormKind::srms;
  DecayKind decay = DecayKind::none;
  GateKind gate = GateKind::none;

  void visit(FieldVisitor& visitor);
  // Decay is not in what queries and keys are scored by.
  [[nodiscard]] Weighting weighting() const {
    return decay == DecayKind::none ? Weighting::unnormalised : Weighting::other;
  }
  [[nodiscard]] std::shared_ptr<Attention> make(const AttentionSettings& settings) const;
  bool operator==(const NormAttentionConfig&) const = default;
};

}  // namespace transnormer
