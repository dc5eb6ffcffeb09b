// tokenizer.json of the Hugging Face library `tokenizers`, and the parts of it that stand in files
// of their own.
#pragma once

#include <string>
#include <string_view>
#include <unordered_set>

#include "config/json_tree.h"
#include "tokenizer/bpe_vocabulary.h"

namespace transnormer {

// {"TOKEN": ID, ..}; those in `added` are added tokens.
void add_vocabulary(const JsonNode& vocabulary, const std::string& name,
                    const std::unordered_set<std::string>& added, BpeVocabularyBuilder& builder);

// "LEFT RIGHT"
void add_merge_line(std::string_view line, const std::string& where, BpeVocabularyBuilder& builder);

// Truncation and padding are left aside: they are about batches. Throws UserError for whatever else
// would make other tokens of a text.
[[nodiscard]] BpeVocabulary read_tokenizer_json(const JsonNode& root, const std::string& name);

}  // namespace transnormer
