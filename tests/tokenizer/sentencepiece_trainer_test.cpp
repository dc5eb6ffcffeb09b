#include "tokenizer/sentencepiece_trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tokenizer/sentencepiece_models.h"
#include "tokenizer/tokenizer.h"
#include "util/error.h"

namespace transnormer {
namespace {

TokenizerConfig config_of(SentencePieceModel type, std::int64_t size) {
  TokenizerConfig config;
  config.type = TokenizerType::sentencepiece;
  config.model_type = type;
  config.vocab_size = size;
  return config;
}

std::string train(const TokenizerConfig& config) {
  const std::vector<std::string> lines = test::small_text();
  std::size_t at = 0;
  return train_sentencepiece(
      [&](std::string& line) { return at < lines.size() && (line = lines[at++], true); }, config);
}

std::string fault_of(const TokenizerConfig& config) {
  try {
    static_cast<void>(train(config));
  } catch (const UserError& error) {
    return error.what();
  }
  return "none";
}

TEST(SentencePieceTrainer, MakesModelsThatGiveEveryTextBackAsItWas) {
  for (const auto type : {SentencePieceModel::unigram, SentencePieceModel::bpe}) {
    const auto tokenizer = parse_tokenizer(train(config_of(type, 340)), "made");
    EXPECT_EQ(tokenizer->size(), 340);
    for (const std::string text :
         {"the old cat", "  two  spaces   three ", " ", "", "tab\tand \x01 control",
          "\xE6\x97\xA5\xE6\x9C\xAC\xE8\xAA\x9E \xF0\x9F\x99\x82", "na\xC3\xAFve cafe\xCC\x81",
          "\xEF\xBC\xA1\xEF\xBC\xA2 fullwidth", "<s> </s> <unk>", "line\r"}) {
      std::vector<TokenId> ids;
      tokenizer->encode_line(text, ids);
      EXPECT_EQ(tokenizer->decode(ids), text);
    }
  }
}

TEST(SentencePieceTrainer, NumbersSpecialsAsTheWordVocabularyDoes) {
  const auto tokenizer = parse_tokenizer(train(config_of(SentencePieceModel::bpe, 320)), "made");
  EXPECT_EQ(tokenizer->begin_id(), 0);
  EXPECT_EQ(tokenizer->end_id(), 2);
  EXPECT_EQ(tokenizer->unknown_id(), 3);
}

TEST(SentencePieceTrainer, MakesTheSameBytesFromTheSameText) {
  const TokenizerConfig config = config_of(SentencePieceModel::unigram, 330);
  EXPECT_EQ(train(config), train(config));
}

TEST(SentencePieceTrainer, HonoursByteFallback) {
  TokenizerConfig config = config_of(SentencePieceModel::unigram, 80);
  config.byte_fallback = false;
  const auto tokenizer = parse_tokenizer(train(config), "made");
  std::vector<TokenId> ids;
  tokenizer->encode_line("\xE6\x97\xA5", ids);
  EXPECT_THAT(ids, testing::ElementsAre(tokenizer->unknown_id()));
}

TEST(SentencePieceTrainer, NamesTheLargestPossibleVocabulary) {
  for (const auto type : {SentencePieceModel::unigram, SentencePieceModel::bpe}) {
    const std::string fault = fault_of(config_of(type, 5000));
    ASSERT_THAT(fault, testing::HasSubstr("tokenizer.vocab_size"));
    const std::size_t at = fault.find("largest possible is ");
    ASSERT_NE(at, std::string::npos) << fault;
    const std::int64_t largest = std::stoll(fault.substr(at + 20));
    EXPECT_EQ(fault_of(config_of(type, largest)), "none");
    EXPECT_NE(fault_of(config_of(type, largest + 1)), "none");
  }
}

TEST(SentencePieceTrainer, RefusesAVocabularyThatIsMissingOrTooSmall) {
  EXPECT_THAT(fault_of(config_of(SentencePieceModel::unigram, 0)),
              testing::HasSubstr("tokenizer.vocab_size: must be set"));
  EXPECT_THAT(fault_of(config_of(SentencePieceModel::unigram, 100)),
              testing::HasSubstr("100 is too small"));
}

}  // namespace
}  // namespace transnormer
