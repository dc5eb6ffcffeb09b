#include "model/model_size.h"

#include <string>

#include "tokenizer/word_dictionary.h"
#include "util/error.h"
#include "util/units.h"

namespace transnormer {

ModelSize model_size(const Config& config, const Tokenizer* tokenizer) {
  ModelSize size;
  size.max_positions = config.data.tokens_per_sample;
  size.vocab_size = config.model.vocab_size;
  if (size.vocab_size == 0) {
    size.vocab_size = tokenizer != nullptr ? tokenizer->size() : made_vocab_size(config.tokenizer);
  }
  if (size.vocab_size == 0) {
    throw UserError(
        "model.vocab_size: the size of the vocabulary is not known before the tokenizer is made; "
        "run `transnormer prepare` on the config, or set model.vocab_size (or "
        "tokenizer.vocab_size)");
  }
  if (tokenizer != nullptr && size.vocab_size < tokenizer->size()) {
    throw UserError("model.vocab_size: " + format_count(size.vocab_size) +
                    " rows are too few for the " + format_count(tokenizer->size()) +
                    " tokens of the tokenizer; set 0 or at least that many");
  }
  return size;
}

}  // namespace transnormer
