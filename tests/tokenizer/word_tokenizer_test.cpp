#include "tokenizer/word_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "util/error.h"
#include "util/hash.h"

namespace transnormer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<TokenId> encode(const Tokenizer& tokenizer, std::string_view line) {
  std::vector<TokenId> ids;
  tokenizer.encode_line(line, ids);
  return ids;
}

std::string fault_of(const std::string& bytes) {
  try {
    static_cast<void>(parse_tokenizer(bytes, "dict.txt"));
  } catch (const UserError& error) {
    return error.what();
  }
  return "none";
}

TEST(WordTokenizer, NumbersTheLinesInTheirOwnOrderAfterTheSpecials) {
  const auto tokenizer = parse_tokenizer("the 3\nzebra 0\ncat 9\n", "dict.txt");
  EXPECT_EQ(tokenizer->size(), 7);
  EXPECT_THAT(encode(*tokenizer, "cat the zebra"), ElementsAre(6, 4, 5));
  EXPECT_EQ(tokenizer->begin_id(), 0);
  EXPECT_EQ(tokenizer->end_id(), 2);
  EXPECT_EQ(tokenizer->unknown_id(), 3);
  EXPECT_EQ(tokenizer->first_input(), 2);
}

TEST(WordTokenizer, SplitsAtAsciiSpacesOnlyAndDropsEmptyWords) {
  const auto tokenizer = parse_tokenizer(
      "a 1\nb\tc 1\nd\xC2\xA0"
      "e 1\n",
      "dict.txt");
  EXPECT_THAT(encode(*tokenizer,
                     "  a   b\tc d\xC2\xA0"
                     "e "),
              ElementsAre(4, 5, 6));
  EXPECT_THAT(encode(*tokenizer, ""), ElementsAre());
  EXPECT_THAT(encode(*tokenizer, "   "), ElementsAre());
}

TEST(WordTokenizer, ReadsWordsSpelledLikeSpecialsAsThoseSpecials) {
  const auto tokenizer = parse_tokenizer("a 1\n", "dict.txt");
  EXPECT_THAT(encode(*tokenizer, "<unk> </s> <pad> <s> other"), ElementsAre(3, 2, 1, 0, 3));
}

TEST(WordTokenizer, JoinsWordsBySpacesAndShowsTheEndTokenAsALineEnd) {
  const auto tokenizer = parse_tokenizer("a 1\nb 1\n", "dict.txt");
  const std::vector<TokenId> ids{4, 5, 2, 2, 5, 3, 2};
  EXPECT_EQ(tokenizer->decode(ids), "a b\n\nb <unk>\n");
}

TEST(WordTokenizer, ReadsAnIdPastItsSizeAsUnknown) {
  const auto tokenizer = parse_tokenizer("a 1\n", "dict.txt");
  EXPECT_EQ(tokenizer->decode(std::vector<TokenId>{4, 5}), "a <unk>");
}

TEST(WordTokenizer, KeepsTheFileAsItWasReadAndItsDigest) {
  const std::string file = "a 1\nb 0";  // without a last line end
  const auto tokenizer = parse_tokenizer(file, "dict.txt");
  EXPECT_EQ(tokenizer->size(), 6);
  EXPECT_EQ(tokenizer->serialized(), file);
  EXPECT_EQ(tokenizer->file_name(), "tokenizer.txt");
  EXPECT_EQ(tokenizer->digest(), sha256(file));
}

TEST(WordTokenizer, ReadsADictionaryBehindAByteOrderMark) {
  const std::string file = "\xEF\xBB\xBFthe 1\ncat 1\n";
  const auto tokenizer = parse_tokenizer(file, "dict.txt");
  std::vector<TokenId> ids;
  tokenizer->encode_line("the cat", ids);
  EXPECT_EQ(ids, (std::vector<TokenId>{4, 5}));
  EXPECT_EQ(tokenizer->digest(), sha256(file));
}

TEST(WordTokenizer, RefusesFaultyDictionariesByLine) {
  EXPECT_EQ(fault_of("a 1\nb\n"), "dict.txt: line 2: expected \"word count\", found \"b\"");
  EXPECT_THAT(fault_of("a 1\n\nb 1\n"), HasSubstr("dict.txt: line 2: expected"));
  EXPECT_THAT(fault_of("a 1\nb -1\n"), HasSubstr("line 2"));
  EXPECT_THAT(fault_of("a 1\r\n"), HasSubstr("line 1: expected \"word count\", found \"a 1\\r\""));
  EXPECT_THAT(fault_of("a b 1\n"), HasSubstr("line 1"));
  EXPECT_THAT(fault_of(" 1\n"), HasSubstr("line 1"));
  EXPECT_EQ(fault_of("a 1\nb 1\na 2\n"), "dict.txt: line 3: the word \"a\" is already on line 1");
  EXPECT_THAT(fault_of("a 1\n<pad> 1\n"), HasSubstr("line 2: \"<pad>\" is a special"));
}

TEST(WordTokenizer, IsToldFromAModelAndFromNeitherByContent) {
  EXPECT_EQ(tokenizer_type("a 1\n"), TokenizerType::word);
  EXPECT_EQ(tokenizer_type("\n\x0E\n\x05<unk>"), TokenizerType::sentencepiece);
  EXPECT_EQ(tokenizer_type(std::string_view("\x7F"
                                            "ELF\0",
                                            5)),
            std::nullopt);
  EXPECT_EQ(fault_of("\nthe 1\n"),
            "dict.txt: is neither a dictionary nor a sentencepiece model: line 1: expected \"word "
            "count\", found \"\"");
  EXPECT_THAT(fault_of("It was a dark night.\n"), HasSubstr("is neither a dictionary nor"));
  EXPECT_THAT(fault_of(""), HasSubstr("dict.txt: is empty"));
  EXPECT_THAT(fault_of(std::string("\x7F"
                                   "ELF\0\0",
                                   6)),
              HasSubstr("neither a dictionary"));
}

}  // namespace
}  // namespace transnormer
