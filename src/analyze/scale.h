// How large an attention's output and its gradients are with and without a denominator. Qin et al.
// 2022, table 1: without one, and without a norm in its place, training fails.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "analyze/subject.h"
#include "analyze/weights.h"

namespace transnormer {

struct ScaleRow {
  std::int64_t layer = 0;
  std::string attention;
  std::optional<bool> denominator;  // nothing: not told by the attention
  std::string norm;                 // of the output, "none" where it has none
  bool as_configured = true;        // else the other form, with the same weights
  // Of what the weights make of the values, before any norm.
  double output_rms = 0;
  double output_max = 0;  // the largest absolute value
  // Of the gradient of the mean loss of the next token with respect to q, k and v together.
  double gradient_rms = 0;
  double gradient_max = 0;
};

// The models that are compared: the subject's own, and, where there is one, that in which every
// attention with a setting `denominator` has it the other way round, and every other attention with
// weights of any sum has `output_norm` "none" in place of a norm, or "srms" in place of none. An
// attention that cannot be so keeps its form.
[[nodiscard]] std::vector<ModelConfig> forms_of(const ModelConfig& model, const ModelSize& size);

// For each selected layer a row for each of its forms, over all heads and windows. Layers whose
// attention has no queries, keys and values have none.
[[nodiscard]] std::vector<ScaleRow> measure_scale(const Subject& subject,
                                                  const Selection& selection);

}  // namespace transnormer
