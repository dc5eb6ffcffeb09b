// Byte-level BPE through the program: prepare, train, eval, generate, tokenizer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/workspace.h"

namespace transnormer {
namespace {

using nlohmann::json;
using testing::HasSubstr;

const std::string kText = " the cat\n\n\n sat\xFF \n  \nend\r\nthe\tend";

class BytePairs : public testing::Test {
 protected:
  BytePairs() {
    const std::filesystem::path fixture = TRANSNORMER_SOURCE_DIR "/tests/tokenizer/bpe";
    for (const char* name : {"small.tiktoken", "vocab.json", "merges.txt"}) {
      std::filesystem::copy_file(fixture / name, workspace_ / name);
    }
    workspace_.write("bpe.json", R"({"include": "tiny.json",
                                     "tokenizer": {"type": "bpe", "path": "small.tiktoken"}})");
    workspace_.write("text", kText);
  }
  [[nodiscard]] std::string text_of(const Arguments& arguments, const std::string& input = "") {
    const Outcome outcome = workspace_.run(arguments, input);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return outcome.out;
  }
  [[nodiscard]] json answer(const Arguments& arguments) { return json::parse(text_of(arguments)); }

  Workspace workspace_;
};

TEST_F(BytePairs, AreTrainedStoredEvaluatedAndContinued) {
  (void)text_of({"train", "bpe.json", "--run-dir", "run"});
  const json config = json::parse(workspace_.read("run/config.json"));
  EXPECT_EQ(config.at("data").at("line_end"), "keep");
  const std::string stored = "run/checkpoints/latest/tokenizer.json";
  EXPECT_EQ(text_of({"tokenizer", "encode", stored}, "the cat's 12\n"),
            text_of({"tokenizer", "encode", "small.tiktoken"}, "the cat's 12\n"));
  EXPECT_EQ(answer({"inspect", "run", "--json"}).at("parameters"),
            answer({"inspect", "bpe.json", "--json"}).at("parameters"));

  const json score = answer({"eval", "run", "--text", "text", "--json"});
  const double nll = score.at("nll").get<double>() * score.at("tokens").get<double>();
  EXPECT_EQ(score.at("bytes"), kText.size());
  EXPECT_EQ(score.at("unknown"), 0);
  EXPECT_EQ(score.at("words"), 5);
  EXPECT_NEAR(score.at("bits_per_byte").get<double>(),
              nll / std::log(2.0) / static_cast<double>(kText.size()), 1e-6);
  // Five words and the six line ends that are there: the last line has none.
  EXPECT_NEAR(score.at("word_perplexity").get<double>(), std::exp(nll / 11),
              1e-4 * std::exp(nll / 11));
  EXPECT_THAT(score.at("protocol").get<std::string>(), HasSubstr("line ends too"));

  // A config of the text that says nothing of line ends changes nothing.
  const json by_words = answer({"eval", "run", "--data", "tiny.json", "--json"});
  EXPECT_EQ(by_words, answer({"eval", "run", "--data", "bpe.json", "--json"}));
  EXPECT_NE(by_words.at("nll"),
            answer({"eval", "run", "--data", "tiny.json", "--set", "data.line_end=eos", "--json"})
                .at("nll"));

  const std::string made =
      text_of({"generate", "run", "--prompt", "the\n\n sat", "--max-tokens", "30", "--seed", "3"});
  EXPECT_TRUE(made.starts_with("the\n\n sat"));
  EXPECT_GT(made.size(), 20U);
  const Outcome endless =
      workspace_.run({"generate", "run", "--samples", "3", "--max-tokens", "2", "--stop-at-eos"});
  EXPECT_THAT(lines_of(endless.err),
              testing::Contains(HasSubstr("--stop-at-eos: the model was trained without end tokens "
                                          "(data.line_end \"keep\")"))
                  .Times(1));
}

// By a config that says nothing of them.
TEST_F(BytePairs, ComeWithTheWeightsThatAnotherRunBeginsWith) {
  (void)text_of({"train", "bpe.json", "--run-dir", "run"});
  const std::string from_run = "train.init_from=run";
  const Outcome prepared = workspace_.run({"prepare", "tiny.json", "--json", "--set", from_run});
  ASSERT_EQ(prepared.status, 0) << prepared.err;
  EXPECT_EQ(json::parse(prepared.out), answer({"prepare", "bpe.json", "--json"}));
  EXPECT_THAT(prepared.err, HasSubstr("tokenizer.type: \"bpe\", as for the weights of "));
  EXPECT_EQ(answer({"inspect", "tiny.json", "--json", "--set", from_run}),
            answer({"inspect", "bpe.json", "--json"}));
  const Outcome inspected = workspace_.run({"inspect", "tiny.json", "--set", from_run});
  EXPECT_EQ(inspected.err, "");  // nothing of a key that it does not read

  const Arguments tune{"train", "tiny.json", "--run-dir", "tuned", "--init-from", "run"};
  const Outcome tuned = workspace_.run(tune);
  ASSERT_EQ(tuned.status, 0) << tuned.err;
  EXPECT_THAT(tuned.err, HasSubstr("data.line_end: \"keep\", as for the weights of "));
  EXPECT_THAT(tuned.err, HasSubstr("100.0% of the model's numbers"));
  const json config = json::parse(workspace_.read("tuned/config.json"));
  EXPECT_EQ(config.at("tokenizer").at("type"), "bpe");
  EXPECT_EQ(config.at("data").at("line_end"), "keep");
  for (const Arguments& again :
       {Arguments{"train", "tiny.json", "--run-dir", "tuned", "--set", "train.steps=8"},
        Arguments{"train", "tuned", "--set", "train.steps=10"}}) {
    const Outcome outcome = workspace_.run(again);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("resumed from "));
  }
  EXPECT_EQ(json::parse(workspace_.read("tuned/config.json")).at("tokenizer"),
            config.at("tokenizer"));
  expect_refused(workspace_,
                 {"train", "tiny.json", "--run-dir", "new", "--init-from", "run", "--set",
                  "tokenizer.type=word"},
                 {"tokenizer.type: is \"word\", and the tokenizer of "});
}

TEST_F(BytePairs, AreTheSameTokenizerInAnotherFile) {
  (void)text_of({"train", "bpe.json", "--run-dir", "run"});
  workspace_.write("whole/vocab.json", workspace_.read("vocab.json"));
  workspace_.write("whole/merges.txt", workspace_.read("merges.txt"));
  for (const char* path : {"whole", "vocab.json", "run/checkpoints/latest/tokenizer.json"}) {
    const Outcome outcome =
        workspace_.run({"train", "bpe.json", "--run-dir", "run", "--set", "train.steps=7", "--set",
                        std::string("tokenizer.path=") + path});
    EXPECT_EQ(outcome.status, 0) << outcome.err;
  }
}

TEST_F(BytePairs, ArePreparedAsOneText) {
  const json counts = answer({"prepare", "bpe.json", "--json", "--set", "data.train=text"});
  const json& train = counts.at("splits").at("train");
  EXPECT_EQ(counts.at("vocab_size"), 757);
  EXPECT_EQ(train.at("lines"), 7);
  EXPECT_EQ(train.at("bytes"), kText.size());
  EXPECT_EQ(train.at("unknown"), 0);
}

TEST_F(BytePairs, EncodeLinesVerbatimAndDecodeThem) {
  const std::string lines = " the  cat\r\n\n<|endoftext|> \xFF\xE2\x80 \n\xE7\x8C\xAB\n";
  const std::string ids = text_of({"tokenizer", "encode", "small.tiktoken"}, lines);
  EXPECT_EQ(lines_of(ids).size(), 4U);
  EXPECT_EQ(text_of({"tokenizer", "decode", "small.tiktoken"}, ids), lines);
  EXPECT_EQ(text_of({"tokenizer", "encode", "merges.txt"}, lines), ids);
  EXPECT_EQ(text_of({"tokenizer", "encode", "."}, lines), ids);
}

TEST_F(BytePairs, AreRefusedInOneLineWhereTheyCannotBe) {
  expect_refused(workspace_, {"prepare", "bpe.json", "--set", "tokenizer.path="},
                 {"tokenizer.path: is empty, and \"bpe\" needs a vocabulary"});
  expect_refused(workspace_, {"tokenizer", "train", "bpe.json", "--out", "made"},
                 {"tokenizer.type: \"bpe\" is not trained by this program"});
  expect_refused(workspace_, {"prepare", "tiny.json", "--set", "data.line_end=keep"},
                 {"data.line_end: \"keep\" needs tokenizer.type \"bpe\""});
  expect_refused(workspace_, {"prepare", "bpe.json", "--set", "tokenizer.type=word"},
                 {"is a byte-level BPE vocabulary, but tokenizer.type is \"word\""});
  expect_refused(workspace_, {"prepare", "bpe.json", "--set", "tokenizer.path=cache"}, {"cache"});
  workspace_.write("half/vocab.json", workspace_.read("vocab.json"));
  expect_refused(workspace_, {"tokenizer", "encode", "half"},
                 {"half/vocab.json: is half of a BPE vocabulary: merges.txt is missing"});
  workspace_.write("bad.tiktoken", workspace_.read("small.tiktoken") + "A=== 756\n");
  expect_refused(workspace_, {"tokenizer", "encode", "bad.tiktoken"},
                 {"bad.tiktoken: line 757: expected a token in base64"});
}

}  // namespace
}  // namespace transnormer
