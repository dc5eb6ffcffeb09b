#include "tokenizer/bpe_tokenizer.h"

#include <nlohmann/json.hpp>
#include <thread>

#include "tokenizer/bpe_fixture.h"
#include "tokenizer/text_losses.h"

namespace transnormer {
namespace {

using test::encoded;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(BpeTokenizer, MakesTheIdsThatTiktokenMakes) {
  const auto tokenizer = test::small_bpe();
  const auto expected = nlohmann::json::parse(read_file(test::bpe_file("expected.json")));
  ASSERT_GT(expected.size(), 250U);
  for (const auto& row : expected) {
    const auto text = row.at("text").get<std::string>();
    const auto ids = row.at("ids").get<std::vector<TokenId>>();
    ASSERT_EQ(encoded(*tokenizer, text), ids) << text;
    ASSERT_EQ(encoded(*tokenizer, text), ids) << text << ", from memory";
    ASSERT_EQ(tokenizer->decode(ids), text);
  }
}

// gpt2.tiktoken of PyPI's openai-whisper, fetched by scripts/get_gpt2_bpe.sh.
TEST(BpeTokenizer, KnowsTheVocabularyOfGpt2) {
  const std::filesystem::path file = TRANSNORMER_SOURCE_DIR "/data/gpt2/gpt2.tiktoken";
  if (!std::filesystem::exists(file)) {
    GTEST_SKIP() << file.string() << " is absent; scripts/get_gpt2_bpe.sh fetches it";
  }
  const auto tokenizer = load_tokenizer(file);
  EXPECT_EQ(tokenizer->size(), 50257);
  EXPECT_EQ(tokenizer->end_id(), 50256);
  EXPECT_THAT(encoded(*tokenizer, "Hello world, it's\n\n 2024!  \u732B"),
              ElementsAre(15496, 995, 11, 340, 338, 628, 48609, 0, 220, 13328, 234, 104));
  EXPECT_EQ(tokenizer->piece(262), "\u0120the");
}

TEST(BpeTokenizer, CodesEveryByteAndGivesItBack) {
  const auto tokenizer = test::small_bpe();
  std::string bytes;
  for (int byte = 0; byte < 256; ++byte) {
    bytes += static_cast<char>(byte);
    bytes += byte % 3 == 0 ? " the" : "";
  }
  for (const std::string& text : {bytes, std::string("a\xC3\xC3\xA9\xE2\x80 \xFF\xFE\n\xF0\x9F")}) {
    EXPECT_EQ(tokenizer->decode(encoded(*tokenizer, text)), text);
  }
  // A byte of no character stands alone: the words on both sides keep their tokens.
  std::vector<TokenId> ids = encoded(*tokenizer, "the");
  ids.push_back(encoded(*tokenizer, "\xFF").at(0));
  for (const TokenId id : encoded(*tokenizer, " the")) {
    ids.push_back(id);
  }
  EXPECT_EQ(encoded(*tokenizer, "the\xFF the"), ids);
}

TEST(BpeTokenizer, AppendsTheEndTokenAndTakesItsNameForText) {
  const auto tokenizer = test::small_bpe();
  EXPECT_EQ(tokenizer->size(), 757);
  EXPECT_EQ(tokenizer->end_id(), 756);
  EXPECT_EQ(tokenizer->unknown_id(), 756);
  EXPECT_EQ(tokenizer->first_input(), 756);
  EXPECT_EQ(tokenizer->begin_id(), std::nullopt);
  const std::vector<TokenId> ids = encoded(*tokenizer, "<|endoftext|>");
  EXPECT_GT(ids.size(), 1U);
  EXPECT_THAT(ids, testing::Not(testing::Contains(756)));
  EXPECT_EQ(tokenizer->decode(ids), "<|endoftext|>");
  EXPECT_EQ(tokenizer->decode(std::vector<TokenId>{756}), "\n");
  EXPECT_EQ(tokenizer->decode(std::vector<TokenId>{9999}), "\n");
}

TEST(BpeTokenizer, NamesATokenAsItsVocabularySpellsIt) {
  const auto tokenizer = test::small_bpe();
  EXPECT_EQ(tokenizer->piece(encoded(*tokenizer, " the").at(0)), "\u0120the");
  EXPECT_EQ(tokenizer->piece(encoded(*tokenizer, "\n").at(0)), "\u010A");
  EXPECT_EQ(tokenizer->piece(encoded(*tokenizer, "\xFF").at(0)), "\u00FF");
  EXPECT_EQ(tokenizer->piece(encoded(*tokenizer, "\x80").at(0)), "\u0122");
  EXPECT_EQ(tokenizer->piece(756), "<|endoftext|>");
}

TEST(BpeTokenizer, StreamsWholeCharactersOnly) {
  const auto tokenizer = test::small_bpe();
  const auto decoder = tokenizer->stream_decoder();
  const std::vector<TokenId> ids = encoded(*tokenizer, "\U0001F98A");
  ASSERT_GT(ids.size(), 1U);
  for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
    EXPECT_EQ(decoder->add(ids[i]), "");
  }
  EXPECT_EQ(decoder->add(ids.back()), "\U0001F98A");
  EXPECT_EQ(decoder->add(encoded(*tokenizer, "\n\n").at(0)).front(), '\n');
  const TokenId lead = encoded(*tokenizer, "\xF0").at(0);
  EXPECT_EQ(decoder->add(lead), "");
  EXPECT_EQ(decoder->add(encoded(*tokenizer, "a").at(0)), "\uFFFDa");
  EXPECT_EQ(decoder->add(lead), "");
  EXPECT_EQ(decoder->finish(), "\uFFFD");
}

TEST(BpeTokenizer, LosesNothingOfALine) {
  const auto tokenizer = test::small_bpe();
  TextLosses losses;
  std::vector<TokenId> ids;
  for (const char* line : {" the  <unk> ", "", "the", "\xFF \xC3"}) {
    tokenizer->encode_line(line, ids, losses);
  }
  EXPECT_FALSE(losses.read_back.altered());
  EXPECT_FALSE(losses.read_back.uneven());
  EXPECT_EQ(losses.unknown.words().size(), 0);
}

TEST(BpeTokenizer, ForgetsWordsWithoutChangingIds) {
  const auto tokenizer = test::small_bpe();
  const std::vector<TokenId> before = encoded(*tokenizer, "the miller's wife");
  std::vector<TokenId> ids;
  for (int number = 0; number < 150000; ++number) {
    ids.clear();
    tokenizer->encode_line(" " + std::to_string(number), ids);
  }
  EXPECT_EQ(tokenizer->decode(ids), " 149999");
  EXPECT_EQ(encoded(*tokenizer, "the miller's wife"), before);
}

TEST(BpeTokenizer, EncodesByManyThreadsAtOnce) {
  const auto tokenizer = test::small_bpe();
  const std::string text = read_file(TRANSNORMER_SOURCE_DIR "/data/fixture/train.txt");
  const std::vector<TokenId> expected = encoded(*tokenizer, text);
  std::vector<std::vector<TokenId>> found(4);
  {
    std::vector<std::jthread> threads;
    for (std::vector<TokenId>& ids : found) {
      threads.emplace_back([&] { tokenizer->encode_line(text, ids); });
    }
  }
  for (const std::vector<TokenId>& ids : found) {
    EXPECT_EQ(ids, expected);
  }
}

}  // namespace
}  // namespace transnormer
