#include "tokenizer/sentencepiece_trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <fstream>

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
    const std::size_t at = fault.find("lower it to at most ");
    ASSERT_NE(at, std::string::npos) << fault;
    const std::int64_t largest = std::stoll(fault.substr(at + 20));
    EXPECT_EQ(fault_of(config_of(type, largest)), "none");
    EXPECT_NE(fault_of(config_of(type, largest + 1)), "none");
  }
}

// Trains on these lines; the log goes to `told`.
std::string train_on(std::vector<std::string> lines, const TokenizerConfig& config,
                     std::string& told) {
  std::size_t at = 0;
  testing::internal::CaptureStderr();
  std::string model = train_sentencepiece(
      [&](std::string& line) { return at < lines.size() && (line = lines[at++], true); }, config);
  told = testing::internal::GetCapturedStderr();
  return model;
}

// The library itself dies of such a line.
TEST(SentencePieceTrainer, LearnsFromLinesThatAreTooLongForTheLibraryInParts) {
  std::string letters;
  for (int i = 0; i < 40000; ++i) {
    letters += i % 7 == 0 ? "\xE6\x97\xA5" : "ab";
  }
  std::string told;
  const TokenizerConfig config = config_of(SentencePieceModel::bpe, 270);
  EXPECT_EQ(parse_tokenizer(train_on({letters, "the cat"}, config, told), "made")->size(), 270);
  EXPECT_THAT(told, testing::HasSubstr("1 line of the training text longer than 16,384 bytes"));
}

TEST(SentencePieceTrainer, CutsLongLinesBeforeSpaces) {
  std::string line;
  std::vector<std::string> parts(1);
  for (int i = 0; line.size() < 3 * kLongestTrainingLine; ++i) {
    const std::string word = (i == 0 ? "w" : " w") + std::to_string(i * 7919 % 1000);
    line += word;
    if (parts.back().size() + word.size() > kLongestTrainingLine) {
      parts.emplace_back();
    }
    parts.back() += word;
  }
  std::string told;
  const TokenizerConfig config = config_of(SentencePieceModel::unigram, 320);
  const std::string of_parts = train_on(parts, config, told);
  EXPECT_EQ(told, "");
  EXPECT_EQ(train_on({line}, config, told), of_parts);
}

TEST(SentencePieceTrainer, RefusesASizeThatTheTextNeverYieldsAtOnce) {
  for (const auto type : {SentencePieceModel::unigram, SentencePieceModel::bpe}) {
    EXPECT_THAT(fault_of(config_of(type, INT32_MAX)),
                testing::MatchesRegex("tokenizer.vocab_size: the training text yields fewer than "
                                      "2147483647 pieces; it has [0-9,]+ characters"));
  }
}

TEST(SentencePieceTrainer, TellsInOneLineWhatTheLibraryDiedOf) {
  const auto next_line = [](std::string& line) {
    static int lines = 0;
    line = "the cat";
    std::ifstream children("/proc/self/task/" + std::to_string(::getpid()) + "/children");
    if (pid_t child = 0; children >> child) {
      ::kill(child, SIGKILL);
    }
    return ++lines < 10;
  };
  try {
    static_cast<void>(train_sentencepiece(next_line, config_of(SentencePieceModel::bpe, 270)));
    ADD_FAILURE();
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), testing::StartsWith("tokenizer: sentencepiece cannot be trained on "
                                                  "this text: the library was ended by signal 9"));
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
