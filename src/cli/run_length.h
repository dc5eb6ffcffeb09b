// How long a run will be, before it begins.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "config/config.h"
#include "config/load.h"
#include "tokenizer/tokenizer.h"

namespace transnormer::cli {

// What a config's cache tells without anything being made: see find_prepared (data/prepare.h).
struct KnownData {
  std::shared_ptr<const Tokenizer> tokenizer;  // may be null
  std::optional<std::int64_t> train_tokens;
};

// Looked for only where the config needs it: where it tells neither vocabulary nor number of
// updates by itself. With train.init_from tokenizer and coding of the text are those of that
// checkpoint, as where the text is prepared. Throws UserError.
[[nodiscard]] KnownData known_data(LoadedConfig loaded);

struct RunLength {
  std::int64_t updates = 0;
  std::int64_t tokens = 0;       // targets, the samples of an update taken as full
  bool may_end_earlier = false;  // at max_epochs, where it is not known how long these are
};

// Nothing where train.steps is 0 and the length of an epoch is not known.
[[nodiscard]] std::optional<RunLength> run_length(const Config& config, const KnownData& known);

[[nodiscard]] double hours_of(const RunLength& length, double tokens_per_s);

// "51,200,000 tokens, 3.2 hours"; without a speed the tokens alone.
[[nodiscard]] std::string describe(const std::optional<RunLength>& length,
                                   std::optional<double> tokens_per_s);

// {updates, tokens, hours}, null where not known.
[[nodiscard]] nlohmann::ordered_json to_json(const std::optional<RunLength>& length,
                                             std::optional<double> tokens_per_s);

}  // namespace transnormer::cli
