#include "tokenizer/sentencepiece_trainer.h"

#include <sentencepiece_trainer.h>

#include <string_view>
#include <unordered_map>

#include "tokenizer/sentencepiece_log.h"
#include "util/error.h"

namespace transnormer {
namespace {

class Lines final : public sentencepiece::SentenceIterator {
 public:
  explicit Lines(const NextLine& next_line) : next_line_(next_line) { Lines::Next(); }
  bool done() const override { return done_; }
  void Next() override { done_ = !next_line_(line_); }
  const std::string& value() const override { return line_; }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  const NextLine& next_line_;
  std::string line_;
  bool done_ = false;
};

std::unordered_map<std::string, std::string> arguments(const TokenizerConfig& config) {
  return {
      {"model_type", config.model_type == SentencePieceModel::bpe ? "bpe" : "unigram"},
      {"vocab_size", std::to_string(config.vocab_size)},
      {"byte_fallback", config.byte_fallback ? "true" : "false"},
      {"normalization_rule_name", "identity"},
      {"remove_extra_whitespaces", "false"},
      {"add_dummy_prefix", "false"},
      {"bos_id", "0"},
      {"pad_id", "1"},
      {"eos_id", "2"},
      {"unk_id", "3"},
      // Lines are never too long; the library's limit of 4,192 bytes would drop paragraphs.
      {"max_sentence_length", "1073741824"},
      // Sums run over this many parts, so the number must not be that of the machine.
      {"num_threads", "16"},
  };
}

// The library's refusals, in words of the config.
UserError refusal(const std::string& message, const TokenizerConfig& config) {
  const std::string size = std::to_string(config.vocab_size);
  constexpr std::string_view kMost = "Please set it to a value <= ";
  if (const std::size_t at = message.find(kMost); at != std::string::npos) {
    const std::string rest = message.substr(at + kMost.size());
    return UserError("tokenizer.vocab_size: the training text yields fewer than " + size +
                     " pieces; the largest possible is " + rest.substr(0, rest.find('.')));
  }
  if (message.find("smaller than required_chars") != std::string::npos) {
    return UserError("tokenizer.vocab_size: " + size +
                     " is too small for the characters of the training text" +
                     (config.byte_fallback ? " and the 256 byte pieces" : ""));
  }
  return UserError("tokenizer: sentencepiece cannot be trained on this text: " + message);
}

}  // namespace

std::string train_sentencepiece(const NextLine& next_line, const TokenizerConfig& config) {
  if (config.vocab_size <= 0) {
    throw UserError(
        "tokenizer.vocab_size: must be set to make a sentencepiece model, for instance 8000");
  }
  silence_sentencepiece();
  Lines lines(next_line);
  std::string model;
  const auto status = sentencepiece::SentencePieceTrainer::Train(arguments(config), &lines, &model);
  if (!status.ok()) {
    throw refusal(status.error_message(), config);
  }
  return model;
}

}  // namespace transnormer
