// The sizes of a model that its own config does not tell.
#pragma once

#include <cstdint>

#include "config/config.h"
#include "tokenizer/tokenizer.h"

namespace transnormer {

// What a model needs to know beside its own config.
struct ModelSize {
  std::int64_t vocab_size = 0;     // rows of the embedding
  std::int64_t max_positions = 0;  // rows of a learned position table: data.tokens_per_sample
};

// For this config and tokenizer; UserError where they do not fit or neither tells the vocabulary's
// size (tokenizer may be null: model.vocab_size, else tokenizer.vocab_size).
[[nodiscard]] ModelSize model_size(const Config& config, const Tokenizer* tokenizer);

}  // namespace transnormer
