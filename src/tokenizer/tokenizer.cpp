#include "tokenizer/tokenizer.h"

#include <algorithm>
#include <utility>

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
  if (bytes.empty() || bytes.find('\0') != std::string_view::npos) {
    return std::nullopt;
  }
  return TokenizerType::word;
}

std::shared_ptr<const Tokenizer> parse_tokenizer(std::string bytes, const std::string& name) {
  const std::optional<TokenizerType> type = tokenizer_type(bytes);
  if (bytes.empty()) {
    throw UserError(name + ": is empty; expected a dictionary or a sentencepiece model");
  }
  if (!type) {
    throw UserError(
        name + ": is neither a dictionary (lines of \"word count\") nor a sentencepiece model");
  }
  if (*type == TokenizerType::sentencepiece) {
    return std::make_shared<SentencePieceTokenizer>(std::move(bytes), name);
  }
  return std::make_shared<WordTokenizer>(std::move(bytes), name);
}

std::shared_ptr<const Tokenizer> load_tokenizer(const std::filesystem::path& path) {
  return parse_tokenizer(read_file(path), path.string());
}

}  // namespace transnormer
