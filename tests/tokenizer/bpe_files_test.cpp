#include "tokenizer/bpe_files.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include "tokenizer/bpe_fixture.h"
#include "util/temporary_directory.h"

namespace transnormer {
namespace {

using nlohmann::json;
using testing::HasSubstr;

void put(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

template <typename Action>
std::string fault_of(const Action& action) {
  try {
    action();
  } catch (const UserError& error) {
    EXPECT_EQ(error.faults().size(), 1U);
    EXPECT_THAT(error.faults().at(0), testing::Not(HasSubstr("\n")));
    return error.what();
  }
  return "none";
}

std::string fault_in(const std::string& bytes) {
  return fault_of([&] { static_cast<void>(parse_tokenizer(bytes, "x")); });
}

class BpeFiles : public testing::Test {
 protected:
  static std::string fixture(const std::string& name) { return read_file(test::bpe_file(name)); }
  [[nodiscard]] std::string fault_at(const std::filesystem::path& path) const {
    return fault_of([&] { static_cast<void>(load_tokenizer(path)); });
  }

  test::TemporaryDirectory dir_;
};

TEST_F(BpeFiles, GiveTheSameTokenizerInWhateverForm) {
  const std::string digest = test::small_bpe()->digest();
  put(dir_ / "vocab.json", fixture("vocab.json"));
  put(dir_ / "merges.txt", fixture("merges.txt"));
  put(dir_ / "any name", fixture("tokenizer.json"));
  put(dir_ / "gpt2-vocab.json", fixture("vocab.json"));
  put(dir_ / "gpt2-merges.txt", fixture("merges.txt"));
  std::filesystem::create_directory(dir_ / "other");
  put(dir_ / "other" / "tokenizer.json", fixture("tokenizer.json"));
  for (const char* path : {".", "vocab.json", "merges.txt", "any name", "gpt2-vocab.json",
                           "gpt2-merges.txt", "other"}) {
    EXPECT_EQ(load_tokenizer(dir_ / path)->digest(), digest) << path;
  }
  EXPECT_EQ(parse_tokenizer(fixture("small.tiktoken"), "x")->digest(), digest);
}

TEST_F(BpeFiles, AreWrittenAsTheLibraryTokenizersWritesThem) {
  const auto tokenizer = test::small_bpe();
  EXPECT_EQ(tokenizer->file_name(), "tokenizer.json");
  const json ours = json::parse(tokenizer->serialized());
  const json theirs = json::parse(fixture("tokenizer.json"));
  EXPECT_EQ(ours.at("added_tokens"), theirs.at("added_tokens"));
  EXPECT_EQ(ours.at("pre_tokenizer"), theirs.at("pre_tokenizer"));
  EXPECT_EQ(ours.at("normalizer"), theirs.at("normalizer"));
  EXPECT_EQ(ours.at("post_processor"), theirs.at("post_processor"));
  json vocabulary = theirs.at("model").at("vocab");
  vocabulary["<|endoftext|>"] = 756;
  EXPECT_EQ(ours.at("model").at("vocab"), vocabulary);
  std::vector<std::string> merges;
  for (const json& pair : theirs.at("model").at("merges")) {
    merges.push_back(pair.at(0).get<std::string>() + ' ' + pair.at(1).get<std::string>());
  }
  EXPECT_EQ(ours.at("model").at("merges").get<std::vector<std::string>>(), merges);
}

TEST_F(BpeFiles, AreReadAsTheyWereWritten) {
  const std::string written = test::small_bpe()->serialized();
  EXPECT_EQ(parse_tokenizer(written, "x")->serialized(), written);
}

TEST_F(BpeFiles, AreToldFromOthersByContent) {
  for (const char* name : {"small.tiktoken", "vocab.json", "merges.txt", "tokenizer.json"}) {
    EXPECT_EQ(tokenizer_type(fixture(name)), TokenizerType::bpe) << name;
  }
  EXPECT_EQ(tokenizer_type("{ 3\nthe 2\n"), TokenizerType::word);
  EXPECT_EQ(tokenizer_type("word 3\nthe 2\n"), TokenizerType::word);
}

TEST_F(BpeFiles, KeepAddedTokensThatNoTextBecomes) {
  json file = json::parse(fixture("tokenizer.json"));
  json added = file["added_tokens"][0];
  added["id"] = 757;
  added["content"] = "<pad \u00e9>";
  file["added_tokens"].push_back(added);
  const auto tokenizer = parse_tokenizer(file.dump(), "x");
  EXPECT_EQ(tokenizer->size(), 758);
  EXPECT_EQ(tokenizer->end_id(), 756);
  EXPECT_EQ(tokenizer->piece(757), "<pad \u00e9>");
  EXPECT_EQ(tokenizer->decode(std::vector<TokenId>{757}), "<pad \u00e9>");
  EXPECT_EQ(parse_tokenizer(tokenizer->serialized(), "x")->serialized(), tokenizer->serialized());
  EXPECT_GT(test::encoded(*tokenizer, "<pad \u00e9>").size(), 2U);
}

TEST_F(BpeFiles, RefuseATiktokenFileThatCannotBe) {
  const std::string good = fixture("small.tiktoken");
  EXPECT_EQ(fault_in(good), "none");
  EXPECT_THAT(
      fault_in(good + "!!!! 756\n"),
      HasSubstr("x: line 757: expected a token in base64 and its rank, found \"!!!! 756\""));
  EXPECT_THAT(fault_in(good + "YWJj\n"), HasSubstr("line 757: expected a token in base64"));
  EXPECT_THAT(fault_in(good + "YWJj -1\n"), HasSubstr("line 757: expected a token in base64"));
  EXPECT_THAT(fault_in(good + "YWJ 756\n"), HasSubstr("line 757: expected a token in base64"));
  EXPECT_THAT(fault_in(good + "eHl6eQ== 3\n"), HasSubstr("x: the id 3 is that of \"$\" and of"));
  EXPECT_THAT(fault_in(good + "IQ== 756\n"),
              HasSubstr("line 757: the token \"!\" is there already, with the id 0"));
  EXPECT_THAT(fault_in(good + "eHl6eQ== 757\n"),
              HasSubstr("x: has the id 757, but only 757 tokens; expected ids from 0 on without"));
  EXPECT_THAT(fault_in(good + "eHl6eQ== 99999999999\n"), HasSubstr("99999999999 is no id"));
  EXPECT_THAT(fault_in(good + "eHl6eQ== 756\n"),
              HasSubstr("x: the token \"xyzy\" of rank 756 becomes 4 tokens of lower ranks; "
                        "expected two"));
  EXPECT_THAT(fault_in("IQ== 0\nIg== 1\n"), HasSubstr("x: has no token for the byte 0x00"));
}

TEST_F(BpeFiles, RefuseVocabularyAndMergesThatDoNotFit) {
  put(dir_ / "vocab.json", fixture("vocab.json"));
  EXPECT_THAT(
      fault_at(dir_ / "vocab.json"),
      HasSubstr("vocab.json: is half of a BPE vocabulary: merges.txt is missing beside it"));
  EXPECT_THAT(fault_in(fixture("vocab.json")), HasSubstr("merges.txt is missing beside it"));
  EXPECT_THAT(fault_in(fixture("merges.txt")), HasSubstr("vocab.json is missing beside it"));
  const auto with_merges = [&](const std::string& more) {
    put(dir_ / "merges.txt", fixture("merges.txt") + more);
    return fault_at(dir_.path());
  };
  EXPECT_EQ(with_merges("\n"), "none");
  EXPECT_THAT(with_merges("q \u0120q\n"),
              HasSubstr("merges.txt: line 502: the vocabulary has no token \"\u0120q"));
  EXPECT_THAT(with_merges("zzz z\n"), HasSubstr("the vocabulary has no token \"zzz\""));
  EXPECT_THAT(with_merges("abc\n"),
              HasSubstr("line 502: expected two tokens with a space between"));
  EXPECT_THAT(with_merges("a b c\n"), HasSubstr("expected two tokens with a space between"));
  EXPECT_THAT(with_merges("\u0120 t\n"), HasSubstr("is there already"));
  std::filesystem::remove(dir_ / "vocab.json");
  EXPECT_THAT(fault_at(dir_.path()), HasSubstr("is a directory without a tokenizer; expected"));
}

TEST_F(BpeFiles, RefuseATokenizerJsonThatDoesMoreByTheNameOfIt) {
  const json good = json::parse(fixture("tokenizer.json"));
  const auto fault_with = [&](const char* path, const char* value) {
    json file = good;
    file[json::json_pointer(path)] = json::parse(value);
    return fault_in(file.dump(1));
  };
  EXPECT_EQ(fault_with("/truncation", "{}"), "none");
  EXPECT_EQ(fault_with("/model/unk_token", "\"<unk>\""), "none");
  EXPECT_THAT(fault_with("/model/type", "\"Unigram\""),
              HasSubstr("model: \"Unigram\" is not supported; expected a model of type \"BPE\""));
  EXPECT_THAT(fault_with("/model/dropout", "0.1"),
              HasSubstr("model.dropout: 0.1 is not supported"));
  EXPECT_THAT(fault_with("/model/end_of_word_suffix", "\"</w>\""),
              HasSubstr("model.end_of_word_suffix: \"</w>\" is not supported; expected null"));
  EXPECT_THAT(fault_with("/model/byte_fallback", "true"), HasSubstr("model.byte_fallback: true"));
  EXPECT_THAT(fault_with("/model/ignore_merges", "true"), HasSubstr("model.ignore_merges: true"));
  EXPECT_THAT(fault_with("/normalizer", R"({"type": "NFC"})"),
              HasSubstr("normalizer: \"NFC\" is not supported; expected null"));
  EXPECT_THAT(fault_with("/pre_tokenizer", R"({"type": "Metaspace"})"),
              HasSubstr("pre_tokenizer: \"Metaspace\" is not supported; expected one of type"));
  EXPECT_THAT(fault_with("/pre_tokenizer", "null"), HasSubstr("pre_tokenizer"));
  EXPECT_THAT(fault_with("/pre_tokenizer/add_prefix_space", "true"),
              HasSubstr("pre_tokenizer.add_prefix_space: true is not supported; expected false"));
  EXPECT_THAT(fault_with("/pre_tokenizer/use_regex", "false"),
              HasSubstr("pre_tokenizer.use_regex: false is not supported; expected true"));
  EXPECT_THAT(fault_with("/post_processor", R"({"type": "TemplateProcessing"})"),
              HasSubstr("post_processor: \"TemplateProcessing\" is not supported"));
  EXPECT_THAT(fault_with("/decoder", R"({"type": "WordPiece"})"),
              HasSubstr("decoder: \"WordPiece\""));
  EXPECT_THAT(fault_with("/added_tokens/0/special", "false"),
              HasSubstr("\"<|endoftext|>\" is no special token"));
  EXPECT_THAT(fault_with("/added_tokens/0/content", "\"\u0120the\""), HasSubstr("an added token"));
  EXPECT_THAT(fault_with("/added_tokens/0/id", "800"), HasSubstr("has the id 800, but only 757"));
  EXPECT_THAT(fault_with("/model/merges", "7"), HasSubstr("model.merges: 7 is not supported"));
  EXPECT_THAT(fault_with("/model/merges/3", "[\"a\"]"), HasSubstr("model.merges: a list"));
  EXPECT_THAT(fault_with("/model/vocab", "[]"), HasSubstr("model.vocab: a list"));
  EXPECT_THAT(fault_in(R"({"model": 1, "x": "y"})"), HasSubstr("is JSON, but no tokenizer"));
  EXPECT_THAT(fault_in(R"({"model": {"layers": 2}})"), HasSubstr("expected a model of type"));
  EXPECT_THAT(fault_in("{\"a\": 1,"), HasSubstr("not valid JSON"));
}

TEST_F(BpeFiles, ReadMergesAsPairsAndAsOneText) {
  json file = json::parse(fixture("tokenizer.json"));
  for (json& merge : file["model"]["merges"]) {
    merge = merge.at(0).get<std::string>() + ' ' + merge.at(1).get<std::string>();
  }
  EXPECT_EQ(parse_tokenizer(file.dump(), "x")->digest(), test::small_bpe()->digest());
}

}  // namespace
}  // namespace transnormer
