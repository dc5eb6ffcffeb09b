// The files in which byte-level BPE vocabularies are kept, told apart by content:
//
//   .tiktoken       lines "BASE64 RANK", the bytes of a token and its id; which two tokens a third
//                   is joined from follows from the ranks
//   vocab.json      {"TOKEN": ID, ..}, and beside it merges.txt, lines "LEFT RIGHT" by rank
//   tokenizer.json  both in one, of the Hugging Face library `tokenizers`, with what is done to a
//                   text before and after
//
// The first two do not say how a text is cut into pieces: it is by GPT-2's pattern.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "tokenizer/bpe_vocabulary.h"

namespace transnormer {

// Whether the bytes start as one of these files does.
[[nodiscard]] bool is_bpe_file(std::string_view bytes);

// Reads one; `name` stands in messages. vocab.json and merges.txt need each other, looked for in
// `directory` where there is one: "X-vocab.json" with "X-merges.txt". Throws UserError for a file
// that is damaged, or asks for what this program does not do to a text; what that is, is named.
[[nodiscard]] BpeVocabulary read_bpe(const std::string& bytes, const std::string& name,
                                     const std::optional<std::filesystem::path>& directory);

// The same of a directory: its tokenizer.json, else its vocab.json with merges.txt. A
// tokenizer.json goes first because it alone says how a text is cut.
[[nodiscard]] BpeVocabulary read_bpe_directory(const std::filesystem::path& directory);

// A tokenizer.json: of the same vocabulary the same bytes, whatever file it was read from.
[[nodiscard]] std::string tokenizer_json(const BpeVocabulary& vocabulary);

}  // namespace transnormer
