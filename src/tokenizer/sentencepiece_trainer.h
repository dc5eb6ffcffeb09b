// Makes sentencepiece models.
#pragma once

#include <functional>
#include <string>

#include "config/config.h"

namespace transnormer {

// Puts the next line into the string; false at the end of the text.
using NextLine = std::function<bool(std::string&)>;

// A model in which every text comes back as it was, byte for byte: no normalisation, spaces kept
// and none added, unknown characters as bytes (with `byte_fallback`). Specials as in the word
// vocabulary: <s> 0, <pad> 1, </s> 2, <unk> 3. The same text and settings make the same bytes, on
// any number of cores. The library holds all the lines in memory. Throws UserError where the text
// does not yield `vocab_size` pieces, naming the most or the least that it does.
[[nodiscard]] std::string train_sentencepiece(const NextLine& next_line,
                                              const TokenizerConfig& config);

}  // namespace transnormer
