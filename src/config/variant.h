// The published models: which parts they fix, and what contradicts them.
#pragma once

#include <string>
#include <vector>

#include "config/config.h"

namespace transnormer {

// Whether a variant fixes this dotted key ("model.early.block", "model.norm").
[[nodiscard]] bool is_part(const std::string& key);

// Sets the parts to those of the variant; `custom` starts from those of t2.
//   t1: ReLA (softmax replaced by ReLU, output normalised) in blocks, then NormAttention with elu.
//   t2: softmax in blocks, then NormAttention with 1 + elu.
//   transformer: softmax attention throughout, LayerNorm, a ReLU mlp of 4 dim, no LRPE.
void reset_parts(ModelConfig& model, ModelVariant variant);

struct Contradiction {
  std::string key;    // dotted
  std::string value;  // as JSON
  std::string fixed;  // what the variant wants there, as JSON
};

// The parts that differ from those that the config's variant fixes. 0 and -1 count as what they
// stand for.
[[nodiscard]] std::vector<Contradiction> contradictions(const Config& config);

}  // namespace transnormer
