#include "tokenizer/sentencepiece_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "data/shared_data.h"
#include "tokenizer/sentencepiece_models.h"
#include "tokenizer/text_losses.h"
#include "util/error.h"

namespace transnormer {
namespace {

std::vector<TokenId> encode(const Tokenizer& tokenizer, std::string_view line) {
  std::vector<TokenId> ids;
  tokenizer.encode_line(line, ids);
  return ids;
}

std::string streamed(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  const auto decoder = tokenizer.stream_decoder();
  std::string text;
  for (const TokenId id : ids) {
    text += decoder->add(id);
  }
  return text + decoder->finish();
}

TEST(SentencePieceTokenizer, EqualsTheOriginalLibraryOnPublicModels) {
  const auto folder = test::shared_data("sentencepiece");
  TRANSNORMER_NEEDS(folder);
  std::ifstream file(folder / "expected_encodings.json");
  const auto all = nlohmann::json::parse(file);
  ASSERT_EQ(all.size(), 2U);
  for (const auto& [model, texts] : all.items()) {
    const auto tokenizer = load_tokenizer(folder / model);
    for (const auto& [text, expected] : texts.items()) {
      const std::vector<TokenId> ids = encode(*tokenizer, text);
      EXPECT_EQ(ids, expected.at("ids").get<std::vector<TokenId>>()) << model << ": " << text;
      EXPECT_EQ(tokenizer->decode(ids), expected.at("decoded").get<std::string>()) << model;
      EXPECT_EQ(streamed(*tokenizer, ids), expected.at("decoded").get<std::string>()) << model;
    }
  }
}

// The stream is our own writing of the library's rule, so it is held against the library.
TEST(SentencePieceTokenizer, StreamsTheTextThatTheLibraryDecodes) {
  const std::vector<std::unordered_map<std::string, std::string>> settings{
      {{"vocab_size", "80"}},
      {{"vocab_size", "330"}, {"byte_fallback", "true"}},
      {{"vocab_size", "330"}, {"byte_fallback", "true"}, {"add_dummy_prefix", "false"}},
      {{"vocab_size", "80"}, {"remove_extra_whitespaces", "false"}, {"unk_surface", "?"}},
      {{"vocab_size", "80"}, {"remove_extra_whitespaces", "false"}, {"add_dummy_prefix", "false"}},
      {{"vocab_size", "80"}, {"add_dummy_prefix", "false"}, {"user_defined_symbols", "<a>,<b>"}},
      {{"vocab_size", "80"}, {"treat_whitespace_as_suffix", "true"}, {"model_type", "bpe"}},
      {{"vocab_size", "80"}, {"pad_id", "3"}, {"control_symbols", "<x>"}},
  };
  std::mt19937 random(7);
  for (const auto& setting : settings) {
    const auto tokenizer = parse_tokenizer(test::library_model(setting), "model");
    for (int round = 0; round < 300; ++round) {
      std::vector<TokenId> ids(round % 12);
      for (TokenId& id : ids) {
        // Early ids often: specials, bytes, and the pieces of spaces.
        id = static_cast<TokenId>(random() % (round % 2 == 0 ? 8 : tokenizer->size()));
      }
      ASSERT_EQ(streamed(*tokenizer, ids), tokenizer->decode(ids))
          << testing::PrintToString(setting) << testing::PrintToString(ids);
    }
  }
}

TEST(SentencePieceTokenizer, HoldsBackACharacterUntilItsLastByte) {
  const auto tokenizer = parse_tokenizer(
      test::library_model({{"vocab_size", "330"}, {"byte_fallback", "true"}}), "model");
  const std::vector<TokenId> ids = encode(*tokenizer, "\xE6\x97\xA5");  // prefix, then three bytes
  ASSERT_EQ(ids.size(), 4U);
  const auto decoder = tokenizer->stream_decoder();
  for (const TokenId id : {ids[0], ids[1], ids[2]}) {
    EXPECT_EQ(decoder->add(id), "");
  }
  EXPECT_EQ(decoder->add(ids[3]), "\xE6\x97\xA5");
  EXPECT_EQ(decoder->add(ids[1]), "");
  EXPECT_EQ(decoder->finish(), "\xEF\xBF\xBD");
}

TEST(SentencePieceTokenizer, ShowsTheEndTokenAsALineEndAndStartsTheNextLineAnew) {
  const auto tokenizer = parse_tokenizer(test::library_model({{"vocab_size", "80"}}), "model");
  std::vector<TokenId> ids = encode(*tokenizer, "the cat");
  const std::vector<TokenId> line = ids;
  ids.push_back(*tokenizer->end_id());
  ids.insert(ids.end(), line.begin(), line.end());
  EXPECT_EQ(tokenizer->decode(ids), "the cat\nthe cat");
  EXPECT_EQ(streamed(*tokenizer, ids), "the cat\nthe cat");
}

TEST(SentencePieceTokenizer, TakesModelsWithoutSpecials) {
  const auto bare = parse_tokenizer(
      test::library_model({{"vocab_size", "80"}, {"bos_id", "-1"}, {"eos_id", "-1"}}), "model");
  EXPECT_EQ(bare->end_id(), std::nullopt);
  EXPECT_EQ(bare->begin_id(), std::nullopt);
  EXPECT_EQ(bare->first_input(), bare->unknown_id());
  EXPECT_EQ(bare->decode(encode(*bare, "the cat")), "the cat");
  const auto no_end = parse_tokenizer(
      test::library_model({{"vocab_size", "80"}, {"bos_id", "5"}, {"eos_id", "-1"}}), "model");
  EXPECT_EQ(no_end->first_input(), 5);
}

TEST(SentencePieceTokenizer, ReadsAnIdPastItsSizeAsUnknown) {
  const auto tokenizer =
      parse_tokenizer(test::library_model({{"vocab_size", "80"}, {"unk_surface", "?"}}), "model");
  EXPECT_EQ(tokenizer->decode(std::vector<TokenId>{80}), "?");
  EXPECT_EQ(streamed(*tokenizer, {80}), "?");
}

TEST(SentencePieceTokenizer, RefusesACutModel) {
  const std::string model = test::library_model({{"vocab_size", "80"}});
  for (const std::size_t size : {std::size_t{5}, std::size_t{40}, model.size() / 2}) {
    try {
      static_cast<void>(parse_tokenizer(model.substr(0, size), "x.model"));
      ADD_FAILURE() << size;
    } catch (const UserError& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("x.model: is not a whole sentencepiece model"));
    }
  }
}

// What is noted of these lines.
TextLosses losses_of(const Tokenizer& tokenizer, const std::vector<std::string>& lines) {
  TextLosses losses;
  std::vector<TokenId> ids;
  for (const std::string& line : lines) {
    tokenizer.encode_line(line, ids, losses);
  }
  return losses;
}

TEST(SentencePieceTokenizer, TellsWhichLinesAreNotReadBackFromTheirTokens) {
  const auto exact = parse_tokenizer(test::library_model({{"vocab_size", "330"},
                                                          {"byte_fallback", "true"},
                                                          {"normalization_rule_name", "identity"},
                                                          {"remove_extra_whitespaces", "false"},
                                                          {"add_dummy_prefix", "false"}}),
                                     "model");
  const auto usual = parse_tokenizer(
      test::library_model({{"vocab_size", "330"}, {"byte_fallback", "true"}}), "model");
  for (const std::string line : {"the cat", "", "\xE6\x97\xA5", "tab\tx"}) {
    EXPECT_FALSE(losses_of(*exact, {line}).read_back.altered()) << line;
    EXPECT_FALSE(losses_of(*usual, {line}).read_back.altered() && line != "tab\tx") << line;
  }
  for (const std::string line : {"bad \xFF",
                                 "a\xE2\x96\x81"
                                 "b"}) {
    EXPECT_TRUE(losses_of(*exact, {line}).read_back.altered()) << line;
    EXPECT_TRUE(losses_of(*usual, {line}).read_back.altered()) << line;
  }
  for (const std::string line : {"two  spaces", "  cat", "\xEF\xBC\xA1 fullwidth"}) {
    EXPECT_FALSE(losses_of(*exact, {line}).read_back.altered()) << line;
    EXPECT_TRUE(losses_of(*usual, {line}).read_back.altered()) << line;
  }
  const std::vector<std::string> alike{" the cat ", " ", " 12 "};
  const std::vector<std::string> uneven{" the cat ", "12"};
  for (const auto& tokenizer : {exact, usual}) {
    EXPECT_FALSE(losses_of(*tokenizer, alike).read_back.altered());
    EXPECT_FALSE(losses_of(*tokenizer, alike).read_back.uneven());
    EXPECT_FALSE(losses_of(*tokenizer, uneven).read_back.altered());
  }
  EXPECT_FALSE(losses_of(*exact, uneven).read_back.uneven());
  EXPECT_TRUE(losses_of(*usual, uneven).read_back.uneven());
}

TEST(SentencePieceTokenizer, NamesWhatItsUnknownTokensStandFor) {
  const auto tokenizer = parse_tokenizer(test::library_model({{"vocab_size", "80"}}), "model");
  const WordCounts unknown = losses_of(*tokenizer, {"the \xE6\x97\xA5 cat", "the cat"}).unknown;
  ASSERT_EQ(unknown.words().size(), 1);
  EXPECT_EQ(unknown.words().word(0), "\xE6\x97\xA5");
}

}  // namespace
}  // namespace transnormer
