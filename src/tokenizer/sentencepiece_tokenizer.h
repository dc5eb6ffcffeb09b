// Any model of the sentencepiece library: unigram, BPE, words or characters, with or without pad,
// begin and end pieces.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tokenizer/sentencepiece_spec.h"
#include "tokenizer/tokenizer.h"

namespace sentencepiece {
class SentencePieceProcessor;
}

namespace transnormer {

class SentencePieceTokenizer final : public Tokenizer {
 public:
  // Throws UserError where the library does not accept the model.
  SentencePieceTokenizer(std::string model, const std::string& name);
  ~SentencePieceTokenizer() override;

  // By the library, each line on its own.
  [[nodiscard]] std::string decode(std::span<const TokenId> ids) const override;
  [[nodiscard]] std::unique_ptr<StreamDecoder> stream_decoder() const override;

  [[nodiscard]] std::string piece(TokenId id) const override;
  [[nodiscard]] std::int64_t size() const override;
  [[nodiscard]] std::optional<TokenId> end_id() const override;
  [[nodiscard]] std::optional<TokenId> begin_id() const override;
  [[nodiscard]] TokenId unknown_id() const override;
  [[nodiscard]] const std::string& serialized() const override { return model_; }
  [[nodiscard]] std::string file_name() const override { return "tokenizer.model"; }

 private:
  void encode(std::string_view line, std::vector<TokenId>& ids, TextLosses* losses) const override;
  void note_losses(std::string_view line, std::span<const int> ids, TextLosses& losses) const;
  [[nodiscard]] TokenId known(TokenId id) const { return id < size() ? id : unknown_id(); }

  std::string model_;
  SentencePieceSpec spec_;
  std::unique_ptr<sentencepiece::SentencePieceProcessor> processor_;
  std::vector<std::string> texts_;  // of each token, within a line
};

}  // namespace transnormer
