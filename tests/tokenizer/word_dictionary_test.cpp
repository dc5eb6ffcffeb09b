#include "tokenizer/word_dictionary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tokenizer/word_tokenizer.h"
#include "util/error.h"

namespace transnormer {
namespace {

using testing::HasSubstr;

WordCounts counted(const std::string& text) {
  WordCounts counts;
  counts.add_text(text);
  return counts;
}

TokenizerConfig unpadded() {
  TokenizerConfig config;
  config.pad_to_multiple = 1;
  return config;
}

TEST(WordDictionary, OrdersByFallingCountThenByBytes) {
  // The accented word sorts last by bytes; capitals before small letters.
  const WordCounts counts = counted("b a b  A\n\xC3\xA9 z z z\nlast");
  EXPECT_EQ(make_dictionary(counts, unpadded()), "z 3\nb 2\nA 1\na 1\nlast 1\n\xC3\xA9 1\n");
}

TEST(WordDictionary, DoesNotListSpecials) {
  EXPECT_EQ(make_dictionary(counted("<unk> <unk> a </s> <s> <pad>"), unpadded()), "a 1\n");
}

TEST(WordDictionary, LeavesOutWordsThatAreTooRare) {
  TokenizerConfig config = unpadded();
  config.min_count = 2;
  EXPECT_EQ(make_dictionary(counted("a a b c c c"), config), "c 3\na 2\n");
  config.min_count = 4;
  EXPECT_THROW(static_cast<void>(make_dictionary(counted("a a b c c c"), config)), UserError);
}

TEST(WordDictionary, IsCappedWithTheSpecialsIncluded) {
  TokenizerConfig config = unpadded();
  config.vocab_size = 6;
  const std::string dictionary = make_dictionary(counted("a a a b b c"), config);
  EXPECT_EQ(dictionary, "a 3\nb 2\n");
  EXPECT_EQ(parse_tokenizer(dictionary, "made")->size(), 6);
  config.vocab_size = 4;
  EXPECT_THROW(static_cast<void>(make_dictionary(counted("a"), config)), UserError);
}

TEST(WordDictionary, IsPaddedByEntriesThatAreNoWordsOfTheText) {
  TokenizerConfig config;
  config.pad_to_multiple = 8;
  config.min_count = 2;
  const std::string dictionary = make_dictionary(counted("a a b b madeupword0001"), config);
  EXPECT_EQ(dictionary, "a 2\nb 2\nmadeupword0000 0\nmadeupword0002 0\n");
  EXPECT_EQ(parse_tokenizer(dictionary, "made")->size(), 8);
}

TEST(WordDictionary, HasTheSizeThatIsForetoldFromTheConfig) {
  TokenizerConfig config;
  EXPECT_EQ(made_vocab_size(config), 0);
  for (const std::int64_t size : {5, 8, 9}) {
    config.vocab_size = size;
    const std::string dictionary = make_dictionary(counted("a b c d e f g"), config);
    EXPECT_EQ(made_vocab_size(config), parse_tokenizer(dictionary, "made")->size());
  }
  EXPECT_EQ(made_vocab_size(config), 16);
  config.type = TokenizerType::sentencepiece;
  EXPECT_EQ(made_vocab_size(config), 9);
}

TEST(WordDictionary, IsTheSameHoweverTheCountingWasCut) {
  const std::string first = "the cat sat\non the mat\n";
  const std::string second = "a cat\nis a cat";
  WordCounts merged = counted(second);
  merged.merge(counted(first));
  EXPECT_EQ(make_dictionary(merged, {}), make_dictionary(counted(first + second), {}));
}

}  // namespace
}  // namespace transnormer
