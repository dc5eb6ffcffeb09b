// The attentions that a config can name. An attention is one file, here or in a test: its settings
// (SettingsOf, config/union.h) with
//   static constexpr const char* kFormula;  // the weights of the values
//   static constexpr const char* kCost;  // its order in the length n: "O(n)", "O(n w)"
//   static constexpr Abilities kAbilities;
//   std::shared_ptr<Attention> make(const AttentionSettings& settings) const;
//   std::int64_t part_multiple() const;  // where a part of a sequence is not of any length
//   // Where settings may not fit together or the model: what is wrong, "KEY: expected ..".
//   std::vector<std::string> faults(const AttentionSettings& settings) const;
//   // Where it is made of others: "first" and what it is, ..
//   std::vector<AttentionPart> parts() const;
//   // Where scores become weights in one of the known ways.
//   Weighting weighting() const;
// (or, if it is a block of its own: std::shared_ptr<Block> make(const BlockSettings&) const), the
// module, and at the end, in the namespace of the settings,
//   [[maybe_unused]] const bool kAdded = add_attention<MyAttentionConfig>();
// The file is named in src/model/CMakeLists.txt, among those that are always linked; that is all.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "config/config.h"
#include "model/attention/abilities.h"
#include "model/attention/attention.h"
#include "model/block.h"
#include "model/model_size.h"

namespace transnormer {

struct AttentionPart {
  std::string key;
  const UnionValue* config;
};

// What the model can do with an attention by its name.
struct AttentionKind {
  const char* formula = "";
  const char* cost = "";
  Abilities abilities;  // beside those of its parts
  // Empty where the attention is a block of its own.
  std::function<std::shared_ptr<Attention>(const UnionValue&, const AttentionSettings&)> make;
  // Empty where AttentionThenFfn is its block.
  std::function<std::shared_ptr<Block>(const UnionValue&, const BlockSettings&)> make_block;
  // Of what the tokens of a rank's part of a sequence must be a multiple.
  std::function<std::int64_t(const UnionValue&)> part_multiple;
  // Empty where any settings serve.
  std::function<std::vector<std::string>(const UnionValue&, const AttentionSettings&)> faults;
  // Of an attention that is made of others: their keys and what they are.
  std::function<std::vector<AttentionPart>(const UnionValue&)> parts;
  std::function<Weighting(const UnionValue&)> weighting;
};

void add_kind(const std::string& name, AttentionKind kind);

// True, so that it can initialise a variable before main().
template <class S>
bool add_attention() {
  AttentionKind kind{.formula = S::kFormula,
                     .cost = S::kCost,
                     .abilities = S::kAbilities,
                     .make = {},
                     .make_block = {},
                     .part_multiple = [](const UnionValue&) { return std::int64_t{1}; },
                     .faults = {},
                     .parts = {},
                     .weighting = [](const UnionValue&) { return Weighting::other; }};
  if constexpr (requires(const S& s) { s.parts(); }) {
    kind.parts = [](const UnionValue& config) { return config.get<S>().parts(); };
  }
  if constexpr (requires(const S& s) { s.part_multiple(); }) {
    kind.part_multiple = [](const UnionValue& config) { return config.get<S>().part_multiple(); };
  }
  if constexpr (requires(const S& s) { s.weighting(); }) {
    kind.weighting = [](const UnionValue& config) { return config.get<S>().weighting(); };
  }
  if constexpr (requires(const S& s, const AttentionSettings& settings) { s.faults(settings); }) {
    kind.faults = [](const UnionValue& config, const AttentionSettings& settings) {
      return config.get<S>().faults(settings);
    };
  }
  if constexpr (requires(const S& s, const AttentionSettings& settings) { s.make(settings); }) {
    kind.make = [](const UnionValue& config, const AttentionSettings& settings) {
      return config.get<S>().make(settings);
    };
  } else {
    kind.make_block = [](const UnionValue& config, const BlockSettings& settings) {
      return config.get<S>().make(settings);
    };
  }
  add_kind(S::kName, std::move(kind));
  if constexpr (S::kAbilities.part &&
                requires(const S& s, const AttentionSettings& settings) { s.make(settings); }) {
    add_alternative<S>(attention_parts());
  }
  return add_alternative<S>(attentions());
}

// All of them, by name.
[[nodiscard]] const std::map<std::string, AttentionKind>& attention_kinds();

[[nodiscard]] const Abilities& abilities(const UnionValue& config);

// What is wrong with its settings in this place.
[[nodiscard]] std::vector<std::string> faults_of(const UnionValue& config,
                                                 const AttentionSettings& settings);

// For attentions that are no block of their own.
[[nodiscard]] std::shared_ptr<Attention> make_attention(const UnionValue& config,
                                                        const AttentionSettings& settings);
[[nodiscard]] inline std::shared_ptr<Attention> make_attention(const AttentionConfig& config,
                                                               const AttentionSettings& settings) {
  return make_attention(static_cast<const UnionValue&>(config), settings);
}

// The block of a layer with this attention.
[[nodiscard]] std::shared_ptr<Block> make_block(const UnionValue& config,
                                                const BlockSettings& settings);
[[nodiscard]] inline std::shared_ptr<Block> make_block(const AttentionConfig& config,
                                                       const BlockSettings& settings) {
  return make_block(static_cast<const UnionValue&>(config), settings);
}

// That of the layer `index`: its attention is model.early or model.late.
[[nodiscard]] std::shared_ptr<Block> make_layer(const ModelConfig& config, const ModelSize& size,
                                                std::int64_t index, at::Device device);

// A Markdown table of all: formula, cost, whether it can be causal, its settings.
[[nodiscard]] std::string attention_table();

// One line for each of the model's attentions that cannot be what model.causal asks for, or whose
// settings do not fit.
[[nodiscard]] std::vector<std::string> unfit_attentions(const ModelConfig& config,
                                                        const ModelSize& size);

// One line for each setting of the model that an attention of it does not heed.
[[nodiscard]] std::vector<std::string> idle_settings(const ModelConfig& config);

// One line for each reason why so many ranks cannot share each sequence; none for one rank.
[[nodiscard]] std::vector<std::string> unfit_for_sequence_parallel(const ModelConfig& config,
                                                                   std::int64_t tokens_per_sample,
                                                                   std::int64_t ranks);

// Throws UserError where a layer's attention cannot go on from a state, or the model is not causal.
void require_decoding(const ModelConfig& config);

}  // namespace transnormer
