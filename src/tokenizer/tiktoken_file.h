// .tiktoken files: lines "BASE64 RANK".
#pragma once

#include <string>
#include <string_view>

#include "tokenizer/bpe_vocabulary.h"

namespace transnormer {

// Whether the first line is one of a single byte, as all these files start.
[[nodiscard]] bool starts_tiktoken(std::string_view bytes);

// Ids are ranks. The merge that makes a token joins the two tokens which its bytes become by all
// merges of lower ranks. Throws UserError where a token does not become two, since no text would
// ever become it, and for bad lines.
[[nodiscard]] BpeVocabulary read_tiktoken(std::string_view bytes, const std::string& name);

}  // namespace transnormer
