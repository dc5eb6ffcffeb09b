#include "config/idle.h"

#include "config/listing.h"
#include "config/names.h"

namespace transnormer {
namespace {

struct Rule {
  bool is_idle;
  std::vector<const char*> keys;
  std::string why;
};

std::vector<Rule> tokenizer_rules(const Config& c) {
  const TokenizerType type = c.tokenizer.type;
  const bool is_loaded = !c.tokenizer.path.empty() || !c.train.init_from.empty();
  const std::string loaded =
      !c.tokenizer.path.empty()
          ? "acts only where a tokenizer is made, and tokenizer.path names one"
          : "acts only where a tokenizer is made, and train.init_from has one";
  return {
      {is_loaded,
       {"tokenizer.vocab_size", "tokenizer.min_count", "tokenizer.pad_to_multiple",
        "tokenizer.model_type", "tokenizer.byte_fallback", "tokenizer.sample_lines"},
       loaded},
      {!is_loaded && type != TokenizerType::word,
       {"tokenizer.min_count", "tokenizer.pad_to_multiple"},
       "acts only with tokenizer.type \"word\""},
      {!is_loaded && type != TokenizerType::sentencepiece,
       {"tokenizer.model_type", "tokenizer.byte_fallback"},
       "acts only with tokenizer.type \"sentencepiece\""},
  };
}

std::vector<Rule> training_rules(const Config& c) {
  const ScheduleConfig& s = c.schedule;
  return {
      {s.name != ScheduleKind::polynomial,
       {"schedule.power"},
       "acts only with schedule.name \"polynomial\""},
      {s.name != ScheduleKind::wsd,
       {"schedule.decay_steps"},
       "acts only with schedule.name \"wsd\""},
      {s.warmup_steps == 0,
       {"schedule.warmup_init_lr"},
       "never acts while schedule.warmup_steps is 0"},
      {c.optimizer.weight_decay == 0,
       {"optimizer.no_decay"},
       "never acts while optimizer.weight_decay is 0"},
      {c.train.nonfinite == NonfinitePolicy::stop,
       {"train.nonfinite_limit"},
       "never acts with train.nonfinite \"stop\""},
  };
}

std::vector<Rule> held_out_rules(const Config& c) {
  const bool validates = !c.data.valid.empty() || c.data.holdout > 0;
  const bool is_off = c.validation.every == 0;
  const std::string why = validates ? "never acts while validation.every is 0"
                                    : "never acts without data.valid or data.holdout";
  return {
      {!validates && !is_off, {"validation.every"}, why},
      {!validates || is_off, {"validation.max_tokens", "validation.prompts"}, why},
      // `eval` heeds them, too.
      {!validates && c.data.test.empty(),
       {"validation.context_window", "validation.batch_size"},
       "never acts without data.valid, data.holdout or data.test"},
  };
}

}  // namespace

std::vector<std::string> idle_keys(const Config& config, const ReadState& state,
                                   const std::string& own_file) {
  const std::vector<FieldRow> values = list_fields(config);
  const std::vector<FieldRow> defaults = list_fields(Config{});
  std::vector<std::string> warnings;
  const auto tell = [&](const Rule& rule) {
    for (const char* key : rule.keys) {
      const auto origin = state.origins.find(key);
      const bool is_meant = origin != state.origins.end() &&
                            (origin->second.source == "--set" || origin->second.source == own_file);
      const FieldRow* value = find_row(values, key);
      const FieldRow* usual = find_row(defaults, key);
      const bool is_default =
          value == nullptr || (usual != nullptr && value->value == usual->value);
      if (rule.is_idle && is_meant && !is_default && !state.faulty.contains(key)) {
        warnings.push_back(origin->second.place + ": " + key + ": " + rule.why);
      }
    }
  };
  for (const auto& rules :
       {tokenizer_rules(config), training_rules(config), held_out_rules(config)}) {
    for (const Rule& rule : rules) {
      tell(rule);
    }
  }
  return warnings;
}

}  // namespace transnormer
