#include "tokenizer/tokenizer.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "tokenizer/bpe_files.h"
#include "tokenizer/bpe_tokenizer.h"
#include "tokenizer/sentencepiece_tokenizer.h"
#include "tokenizer/word_tokenizer.h"
#include "util/error.h"
#include "util/file.h"
#include "util/hash.h"

namespace transnormer {

std::string Tokenizer::decode(std::span<const TokenId> ids) const {
  const std::unique_ptr<StreamDecoder> decoder = stream_decoder();
  std::string text;
  for (const TokenId id : ids) {
    text += decoder->add(id);
  }
  return text + decoder->finish();
}

TokenId Tokenizer::first_input() const {
  return end_id().value_or(begin_id().value_or(unknown_id()));
}

const std::string& Tokenizer::digest() const {
  std::call_once(digest_once_, [this] { digest_ = sha256(serialized()); });
  return digest_;
}

std::optional<TokenizerType> tokenizer_type(std::string_view bytes) {
  // A model starts with its first piece: field 1 of the message. In a text that byte would be an
  // empty line; but the numbers of fields and the sizes in a model are such bytes as no text holds.
  constexpr char kPieceField = 0x0A;
  const auto is_control = [](char byte) { return byte >= 0 && byte < '\t'; };
  if (bytes.starts_with(kPieceField) && std::ranges::any_of(bytes, is_control)) {
    return TokenizerType::sentencepiece;
  }
  if (is_bpe_file(bytes)) {
    return TokenizerType::bpe;
  }
  if (bytes.empty() || bytes.find('\0') != std::string_view::npos) {
    return std::nullopt;
  }
  return TokenizerType::word;
}

namespace {

// Files that belong to this one are looked for in `directory`, where there is one.
std::shared_ptr<const Tokenizer> parse(std::string bytes, const std::string& name,
                                       const std::optional<std::filesystem::path>& directory) {
  if (bytes.empty()) {
    throw UserError(name +
                    ": is empty; expected a dictionary, a sentencepiece model or a BPE vocabulary");
  }
  const std::optional<TokenizerType> type = tokenizer_type(bytes);
  if (!type) {
    throw UserError(name +
                    ": is neither a dictionary (lines of \"word count\") nor a sentencepiece model "
                    "nor a BPE vocabulary");
  }
  switch (*type) {
    case TokenizerType::sentencepiece:
      return std::make_shared<SentencePieceTokenizer>(std::move(bytes), name);
    case TokenizerType::bpe:
      return std::make_shared<BpeTokenizer>(read_bpe(bytes, name, directory));
    case TokenizerType::word:
      break;
  }
  return std::make_shared<WordTokenizer>(std::move(bytes), name);
}

}  // namespace

std::shared_ptr<const Tokenizer> parse_tokenizer(std::string bytes, const std::string& name) {
  return parse(std::move(bytes), name, std::nullopt);
}

std::shared_ptr<const Tokenizer> load_tokenizer(const std::filesystem::path& path) {
  std::error_code error;  // what cannot be looked up cannot be read, which says why
  if (std::filesystem::is_directory(path, error)) {
    return std::make_shared<BpeTokenizer>(read_bpe_directory(path));
  }
  return parse(read_file(path), path.string(), path.parent_path());
}

}  // namespace transnormer
