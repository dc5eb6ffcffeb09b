// The settings of DiagAttention: attention inside non-overlapping blocks.
#pragma once

#include <cstdint>
#include <memory>

#include "config/config.h"
#include "config/fields.h"
#include "model/attention/abilities.h"

namespace transnormer {

class Attention;
struct AttentionSettings;

struct DiagAttentionConfig {
  static constexpr const char* kName = "diag";
  static constexpr const char* kHelp = "Attention inside non-overlapping blocks (DiagAttention)";
  static constexpr const char* kFormula = "softmax(q·k / sqrt(dh)), or relu, inside blocks";
  static constexpr const char* kCost = "O(n w)";
  static constexpr Abilities kAbilities{.sequence_parallel = true};

  ScoreKind score = ScoreKind::softmax;
  std::int64_t block = 64;
  NormKind output_norm = NormKind::none;

  void visit(FieldVisitor& visitor);
  [[nodiscard]] Weighting weighting() const {
    return score == ScoreKind::softmax ? Weighting::softmax : Weighting::unnormalised;
  }
  // Parts of a sequence are made of whole blocks.
  [[nodiscard]] std::int64_t part_multiple() const { return block; }
  [[nodiscard]] std::shared_ptr<Attention> make(const AttentionSettings& settings) const;
  bool operator==(const DiagAttentionConfig&) const = default;
};

}  // namespace transnormer
