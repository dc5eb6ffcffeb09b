#include "cli/run_length.h"

#include <algorithm>
#include <filesystem>

#include "data/prepare.h"
#include "train/ending.h"
#include "train/initial_weights.h"
#include "util/units.h"

namespace transnormer::cli {
namespace {

// Nothing where only the text's length would tell.
std::optional<std::int64_t> updates_of(const Config& config, const KnownData& known) {
  if (known.train_tokens && *known.train_tokens > 0) {
    const std::int64_t length = config.data.tokens_per_sample;
    return total_steps(config.train, (*known.train_tokens + length - 1) / length);
  }
  return config.train.steps > 0 ? std::optional(config.train.steps) : std::nullopt;
}

PreparedData find_data(LoadedConfig& loaded) {
  const std::optional<Checkpoint> initial = open_initial_weights(loaded.config);
  if (!initial) {
    return find_prepared(loaded.config);
  }
  (void)take_coding(*initial, loaded);  // whoever prepares the text is told
  return find_prepared(loaded.config, tokenizer_of(*initial, loaded.config));
}

}  // namespace

KnownData known_data(LoadedConfig loaded) {
  const Config& config = loaded.config;
  const TokenizerConfig& tokenizer = config.tokenizer;
  const bool has_initial = !config.train.init_from.empty();
  std::error_code none;
  // A size that is written down serves where the file is not there.
  const bool needs_vocabulary =
      config.model.vocab_size == 0 &&
      (tokenizer.vocab_size == 0 || (has_initial && tokenizer.path.empty()) ||
       std::filesystem::exists(tokenizer.path, none));
  if (!needs_vocabulary && config.train.max_epochs == 0) {
    return {};
  }
  if (!needs_vocabulary && !tokenizer.path.empty() &&
      !std::filesystem::exists(tokenizer.path, none)) {
    return {};
  }
  if (!needs_vocabulary && has_initial && !std::filesystem::exists(config.train.init_from, none)) {
    return {};
  }
  const PreparedData data = find_data(loaded);
  KnownData known{.tokenizer = needs_vocabulary ? data.tokenizer : nullptr, .train_tokens = {}};
  if (const std::optional<PreparedSplit>& split = data.find(Split::train)) {
    known.train_tokens = split->counts.tokens;
  }
  return known;
}

std::optional<RunLength> run_length(const Config& config, const KnownData& known) {
  const TrainConfig& train = config.train;
  if (train.steps == 0 && train.max_epochs == 0) {
    return std::nullopt;
  }
  const std::optional<std::int64_t> updates = updates_of(config, known);
  if (!updates) {
    return std::nullopt;
  }
  const double tokens = static_cast<double>(*updates) *
                        static_cast<double>(train.global_batch_size) *
                        static_cast<double>(config.data.tokens_per_sample);
  constexpr double kMost = 9e18;
  return RunLength{.updates = *updates,
                   .tokens = static_cast<std::int64_t>(std::min(tokens, kMost)),
                   .may_end_earlier = train.max_epochs > 0 && !known.train_tokens};
}

double hours_of(const RunLength& length, double tokens_per_s) {
  constexpr double kSeconds = 3600;
  return static_cast<double>(length.tokens) / tokens_per_s / kSeconds;
}

std::string describe(const std::optional<RunLength>& length, std::optional<double> tokens_per_s) {
  if (!length) {
    return "of unknown length; `transnormer prepare` tells how long an epoch is";
  }
  std::string text = format_count(length->tokens) + " tokens";
  if (tokens_per_s) {
    const double hours = hours_of(*length, *tokens_per_s);
    text += ", " + (hours < 0.1 ? format_significant(hours) : format_fixed(hours, 1)) + " hours";
  }
  return text + (length->may_end_earlier ? " (less where train.max_epochs ends it)" : "");
}

nlohmann::ordered_json to_json(const std::optional<RunLength>& length,
                               std::optional<double> tokens_per_s) {
  nlohmann::ordered_json json{{"updates", nullptr}, {"tokens", nullptr}, {"hours", nullptr}};
  if (length) {
    json["updates"] = length->updates;
    json["tokens"] = length->tokens;
    if (tokens_per_s) {
      json["hours"] = hours_of(*length, *tokens_per_s);
    }
  }
  return json;
}

}  // namespace transnormer::cli
