// Byte-level BPE as GPT-2 has it: a text is cut into pieces (gpt2_pattern.h), and the bytes of each
// are joined into tokens (bpe_merger.h). Every byte is coded: none is unknown, and ids read as the
// very bytes that they were made of. Specials in a text are ordinary text.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tokenizer/bpe_merger.h"
#include "tokenizer/bpe_vocabulary.h"
#include "tokenizer/tokenizer.h"

namespace transnormer {

class BpeTokenizer final : public Tokenizer {
 public:
  explicit BpeTokenizer(BpeVocabulary vocabulary);
  ~BpeTokenizer() override;

  // Bytes as they are, also those that are no character.
  [[nodiscard]] std::string decode(std::span<const TokenId> ids) const override;
  [[nodiscard]] std::unique_ptr<StreamDecoder> stream_decoder() const override;

  [[nodiscard]] std::string piece(TokenId id) const override;
  [[nodiscard]] std::int64_t size() const override { return std::ssize(vocabulary_.tokens); }
  [[nodiscard]] std::optional<TokenId> end_id() const override { return vocabulary_.end; }
  [[nodiscard]] std::optional<TokenId> begin_id() const override { return std::nullopt; }
  // The end token: no text is unknown.
  [[nodiscard]] TokenId unknown_id() const override { return vocabulary_.end; }

  // A tokenizer.json, the same for the same vocabulary whatever file it came from.
  [[nodiscard]] const std::string& serialized() const override { return serialized_; }
  [[nodiscard]] std::string file_name() const override { return "tokenizer.json"; }

 private:
  class Encoder;

  // Line ends may be part of the line: pieces run across them.
  void encode(std::string_view line, std::vector<TokenId>& ids, TextLosses* losses) const override;
  [[nodiscard]] const BpeToken& token(TokenId id) const;
  [[nodiscard]] std::unique_ptr<Encoder> take_encoder() const;

  BpeVocabulary vocabulary_;
  BpeMerger merger_;
  std::string serialized_;
  // An encoder remembers words, so each thread needs one of its own while it encodes.
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Encoder>> idle_;
};

}  // namespace transnormer
