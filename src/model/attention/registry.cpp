#include "model/attention/registry.h"

#include <algorithm>
#include <map>
#include <utility>

#include "config/listing.h"
#include "model/attention_then_ffn.h"
#include "util/error.h"

namespace transnormer {
namespace {

std::map<std::string, AttentionKind>& kinds() {
  static std::map<std::string, AttentionKind> by_name;
  return by_name;
}

// "a, b": the attentions that have an ability.
std::string those_with(bool Abilities::*ability) {
  std::string names;
  for (const auto& [name, kind] : kinds()) {
    if (kind.abilities.*ability) {
      names += (names.empty() ? "" : ", ") + name;
    }
  }
  return names;
}

struct Used {
  std::string key;
  const UnionValue* config;
  bool is_part = false;
};

void add_used(std::vector<Used>& used, const std::string& key, const UnionValue& config,
              bool is_part) {
  used.push_back({key, &config, is_part});
  const AttentionKind& kind = kinds().at(config.name());
  for (const AttentionPart& part : kind.parts ? kind.parts(config) : std::vector<AttentionPart>{}) {
    add_used(used, key + "." + part.key, *part.config, true);
  }
}

// What the layers use, parts of others too; what no layer has is not looked at, and what all have
// is looked at once.
std::vector<Used> used_attentions(const ModelConfig& config) {
  const std::int64_t early = config.resolved_early_layers();
  std::vector<Used> used;
  if (early > 0) {
    add_used(used, "model.early", config.early, false);
  }
  if (early < config.layers && (early == 0 || config.early != config.late)) {
    add_used(used, "model.late", config.late, false);
  }
  return used;
}

AttentionSettings attention_settings(const UnionValue& config, const BlockSettings& settings) {
  const ModelConfig& model = settings.model;
  return {.layer = settings.layer,
          .layers = model.layers,
          .random_key = settings.layer,
          .dim = model.dim,
          .inner = 0,
          .heads = model.heads,
          .lrpe = model.lrpe && abilities(config).lrpe,
          .norm_eps = model.norm_eps,
          .dropout = model.attention_dropout,
          .causal = model.causal,
          .max_positions = settings.max_positions,
          .device = settings.device};
}

}  // namespace

void add_kind(const std::string& name, AttentionKind kind) {
  kinds()[name] = std::move(kind);
}

const std::map<std::string, AttentionKind>& attention_kinds() {
  return kinds();
}

const Abilities& abilities(const UnionValue& config) {
  return kinds().at(config.name()).abilities;
}

std::vector<std::string> faults_of(const UnionValue& config, const AttentionSettings& settings) {
  const AttentionKind& kind = kinds().at(config.name());
  return kind.faults ? kind.faults(config, settings) : std::vector<std::string>{};
}

std::shared_ptr<Attention> make_attention(const UnionValue& config,
                                          const AttentionSettings& settings) {
  return kinds().at(config.name()).make(config, settings);
}

std::shared_ptr<Block> make_block(const UnionValue& config, const BlockSettings& settings) {
  const AttentionKind& kind = kinds().at(config.name());
  if (kind.make_block) {
    return kind.make_block(config, settings);
  }
  return std::make_shared<AttentionThenFfn>(kind.make(config, attention_settings(config, settings)),
                                            settings);
}

std::shared_ptr<Block> make_layer(const ModelConfig& config, const ModelSize& size,
                                  std::int64_t index, at::Device device) {
  const bool early = index < config.resolved_early_layers();
  return make_block(
      early ? config.early : config.late,
      {.model = config, .layer = index, .max_positions = size.max_positions, .device = device});
}

std::vector<std::string> unfit_attentions(const ModelConfig& config, const ModelSize& size) {
  bool Abilities::*const wanted = config.causal ? &Abilities::causal : &Abilities::bidirectional;
  std::vector<std::string> faults;
  for (const Used& used : used_attentions(config)) {
    if (!(abilities(*used.config).*wanted)) {
      faults.push_back(used.key + ": the attention \"" + used.config->name() + "\" cannot be " +
                       (config.causal ? "causal" : "bidirectional") + "; set model.causal to " +
                       (config.causal ? "false" : "true") + ", or choose one of " +
                       those_with(wanted));
    }
    if (used.is_part) {
      continue;  // the whole tells of their settings
    }
    const AttentionSettings settings =
        attention_settings(*used.config, {.model = config, .max_positions = size.max_positions});
    for (const std::string& fault : faults_of(*used.config, settings)) {
      faults.push_back(used.key + "." + fault);
    }
  }
  return faults;
}

std::string attention_table() {
  const auto cell = [](const std::string& text) {
    std::string escaped;
    for (const char c : text) {
      escaped += c == '|' ? "\\|" : std::string(1, c);
    }
    return escaped;
  };
  std::string table =
      "| attention | weights of the values | cost | causal | settings |\n|---|---|---|---|---|\n";
  for (const auto& [name, kind] : kinds()) {
    std::string settings;
    for (const std::string& key : setting_keys(AttentionConfig(name.c_str()))) {
      const std::string own = key.substr(0, key.find('.'));  // of a part: its name
      if (settings.find("`" + own + "`") == std::string::npos) {
        settings += (settings.empty() ? "`" : ", `") + own + "`";
      }
    }
    table += "| `" + name + "` | " + cell(kind.formula) + " | " + kind.cost + " | " +
             (kind.abilities.causal ? "yes" : "no") + " | " + settings + " |\n";
  }
  return table;
}

std::vector<std::string> idle_settings(const ModelConfig& config) {
  std::vector<std::string> idle;
  for (const Used& used : used_attentions(config)) {
    const std::string name = "the attention \"" + used.config->name() + "\" (" + used.key + ")";
    if (config.lrpe && !abilities(*used.config).lrpe) {
      idle.push_back("model.lrpe: " + name + " has no learned rotary positions");
    }
  }
  return idle;
}

std::vector<std::string> unfit_for_sequence_parallel(const ModelConfig& config,
                                                     std::int64_t tokens_per_sample,
                                                     std::int64_t ranks) {
  if (ranks == 1) {
    return {};
  }
  const std::string key = "distributed.sequence_parallel";
  std::vector<std::string> faults;
  if (!config.causal) {
    faults.push_back(key + ": expected 1 where model.causal is false, got " +
                     std::to_string(ranks));
  }
  if (tokens_per_sample % ranks != 0) {
    faults.push_back(key + ": expected a divisor of data.tokens_per_sample (" +
                     std::to_string(tokens_per_sample) + "), got " + std::to_string(ranks));
  }
  for (const Used& used : used_attentions(config)) {
    const AttentionKind& kind = kinds().at(used.config->name());
    const std::int64_t multiple = kind.part_multiple(*used.config);
    if (!abilities(*used.config).sequence_parallel) {
      faults.push_back(used.key + ": the attention \"" + used.config->name() +
                       "\" cannot be shared by ranks; set " + key + " to 1, or choose one of " +
                       those_with(&Abilities::sequence_parallel));
    } else if (tokens_per_sample % ranks == 0 && tokens_per_sample / ranks % multiple != 0) {
      faults.push_back(used.key + ": the attention \"" + used.config->name() +
                       "\" needs parts of a multiple of " + std::to_string(multiple) +
                       " tokens; data.tokens_per_sample over " + key + " is " +
                       std::to_string(tokens_per_sample / ranks) + ", set a multiple of " +
                       std::to_string(multiple * ranks));
    }
  }
  return faults;
}

void require_decoding(const ModelConfig& config) {
  std::vector<std::string> faults;
  if (!config.causal) {
    faults.emplace_back(
        "model.causal: a model in which tokens see what comes after them cannot "
        "decode; expected true");
  }
  for (const Used& used : used_attentions(config)) {
    if (!abilities(*used.config).decodes) {
      faults.push_back(used.key + ": the attention \"" + used.config->name() +
                       "\" cannot decode token by token; those that can are " +
                       those_with(&Abilities::decodes));
    }
  }
  if (!faults.empty()) {
    throw UserError(faults);
  }
}

}  // namespace transnormer
