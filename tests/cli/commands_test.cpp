// Every command as a process, used as it should be.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "cli/workspace.h"

namespace transnormer {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::StartsWith;

class Commands : public TrainedRun {
 protected:
  // Runs a command that must succeed, and reads its stdout as one JSON object.
  static json answer(const Arguments& arguments) {
    const Outcome outcome = workspace().run(arguments);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    const json parsed = json::parse(outcome.out, nullptr, false);
    EXPECT_FALSE(parsed.is_discarded()) << outcome.out;
    return parsed;
  }
  static std::string text_of(const Arguments& arguments, const std::string& input = "") {
    const Outcome outcome = workspace().run(arguments, input);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return outcome.out;
  }
  static std::vector<json> json_lines(const std::string& file) {
    std::vector<json> lines;
    for (const std::string& line : lines_of(workspace().read(file))) {
      lines.push_back(json::parse(line));
    }
    return lines;
  }
};

TEST_F(Commands, HelpAndVersionGoToStdout) {
  EXPECT_THAT(text_of({"--help"}), HasSubstr("generate"));
  EXPECT_THAT(text_of({"eval", "--help"}), HasSubstr("--context-window"));
  EXPECT_FALSE(text_of({"--version"}).empty());
}

TEST_F(Commands, TrainLeavesARunDirectory) {
  for (const char* name :
       {"run/config.json", "run/train.log", "run/metrics.jsonl",
        "run/checkpoints/step-00000003/manifest.json",
        "run/checkpoints/step-00000006/model.safetensors", "run/checkpoints/latest/state.json",
        "run/checkpoints/best/optimizer.safetensors", "run/checkpoints/latest/tokenizer.txt",
        "run/checkpoints/latest/unigram.bin", "run/checkpoints/latest/config.json"}) {
    EXPECT_TRUE(std::filesystem::exists(workspace() / name)) << name;
  }
  int train_lines = 0;
  int valid_lines = 0;
  for (const json& line : json_lines("run/metrics.jsonl")) {
    train_lines += line.at("kind") == "train" ? 1 : 0;
    valid_lines += line.at("kind") == "valid" ? 1 : 0;
  }
  EXPECT_EQ(train_lines, 6);
  EXPECT_EQ(valid_lines, 2);
}

TEST_F(Commands, TrainOnAFinishedRunSaysSoAndChangesNothing) {
  const std::string model = workspace().read("run/checkpoints/latest/model.safetensors");
  const Outcome outcome = workspace().run({"train", "tiny.json", "--run-dir", "run"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("ended"));
  EXPECT_EQ(workspace().read("run/checkpoints/latest/model.safetensors"), model);
}

TEST_F(Commands, TrainGoesOnFromACheckpoint) {
  const Outcome first =
      workspace().run({"train", "tiny.json", "--run-dir", "more", "--set", "train.steps=3"});
  ASSERT_EQ(first.status, 0) << first.err;
  const Outcome second = workspace().run({"train", "tiny.json", "--run-dir", "more"});
  ASSERT_EQ(second.status, 0) << second.err;
  EXPECT_EQ(workspace().read("more/checkpoints/step-00000006/model.safetensors"),
            workspace().read("run/checkpoints/step-00000006/model.safetensors"));
}

TEST_F(Commands, EvalAnswersWithEveryFigure) {
  const json figures = answer({"eval", "run", "--json", "--per-token", "losses.jsonl"});
  std::vector<std::string> keys;
  for (const auto& [key, value] : figures.items()) {
    keys.push_back(key);
  }
  EXPECT_THAT(keys, testing::UnorderedElementsAre("tokens", "nll", "nll_stderr", "token_perplexity",
                                                  "words", "word_perplexity", "bytes",
                                                  "bits_per_byte", "unknown", "unigram_perplexity",
                                                  "window", "context_window", "protocol"));

  const std::string text = workspace().read("test.txt");
  std::istringstream stream(text);
  const auto words = std::distance(std::istream_iterator<std::string>(stream), {});
  const auto tokens = words + std::count(text.begin(), text.end(), '\n');
  const std::vector<json> losses = json_lines("losses.jsonl");
  double sum = 0;
  for (std::size_t i = 0; i < losses.size(); ++i) {
    EXPECT_EQ(losses[i].at("index"), i);
    sum += losses[i].at("nll").get<double>();
  }
  const double mean = sum / static_cast<double>(tokens);
  ASSERT_EQ(std::ssize(losses), tokens);
  EXPECT_EQ(figures.at("tokens"), tokens);
  EXPECT_EQ(figures.at("words"), words);
  EXPECT_EQ(figures.at("bytes"), text.size());
  EXPECT_EQ(figures.at("unknown"), 0);
  EXPECT_EQ(figures.at("window"), 24);
  EXPECT_EQ(figures.at("context_window"), 0);
  EXPECT_NEAR(figures.at("nll"), mean, 1e-6);
  EXPECT_NEAR(figures.at("token_perplexity"), std::exp(mean), 1e-4);
  EXPECT_NEAR(figures.at("word_perplexity"), std::exp(mean), 1e-4);  // line ends count in both
  EXPECT_NEAR(figures.at("bits_per_byte"), sum / std::log(2.0) / static_cast<double>(text.size()),
              1e-6);
}

TEST_F(Commands, EvalTakesTextAndOtherConfigs) {
  const json test = answer({"eval", "run/checkpoints/latest", "--json"});
  const json text = answer({"eval", "run/checkpoints/latest", "--text", "test.txt", "--json"});
  EXPECT_EQ(text.at("nll"), test.at("nll"));
  const json valid = answer({"eval", "run/checkpoints/latest", "--split", "valid", "--json"});
  workspace().write("other.json", R"({"data": {"test": "valid.txt", "cache_dir": "cache"}})");
  const json other = answer({"eval", "run/checkpoints/latest", "--data", "other.json", "--json"});
  EXPECT_EQ(other.at("nll"), valid.at("nll"));
  EXPECT_EQ(other.at("window"), 24);
  EXPECT_NE(valid.at("nll"), test.at("nll"));
}

TEST_F(Commands, EvalHasNoBitsAByteWhereWordsAreUnknown) {
  workspace().write("strange.txt", "the zebra sang\n");
  const json figures = answer({"eval", "run", "--text", "strange.txt", "--json"});
  EXPECT_EQ(figures.at("unknown"), 1);
  EXPECT_EQ(figures.at("tokens"), 4);
  EXPECT_TRUE(figures.at("bits_per_byte").is_null());
}

TEST_F(Commands, EvalSlidesItsWindow) {
  const json none = answer({"eval", "run", "--json"});
  const json much = answer({"eval", "run", "--json", "--context-window", "20"});
  EXPECT_EQ(much.at("context_window"), 20);
  EXPECT_EQ(much.at("tokens"), none.at("tokens"));
  EXPECT_NE(much.at("nll"), none.at("nll"));
  EXPECT_THAT(text_of({"eval", "run"}), HasSubstr("word perplexity"));
}

TEST_F(Commands, GenerateContinuesThePrompt) {
  const Arguments greedy{"generate",     "run", "--prompt",      "the river",
                         "--max-tokens", "30",  "--temperature", "0"};
  const std::string text = text_of(greedy);
  EXPECT_THAT(text, StartsWith("the river"));
  EXPECT_EQ(text_of(greedy), text);
  workspace().write("prompt.txt", "the river");
  EXPECT_EQ(text_of({"generate", "run", "--prompt-file", "prompt.txt", "--max-tokens", "30",
                     "--temperature", "0"}),
            text);
  const std::string one = text_of({"generate", "run", "--max-tokens", "30", "--seed", "5"});
  EXPECT_EQ(text_of({"generate", "run", "--max-tokens", "30", "--seed", "5"}), one);
  EXPECT_NE(text_of({"generate", "run", "--max-tokens", "30", "--seed", "6"}), one);
}

TEST_F(Commands, GenerateMakesExactlyTheTokensAskedFor) {
  // Every token is a word or a line end, and the program ends its output with a line end.
  std::string text = text_of({"generate", "run", "--max-tokens", "200", "--seed", "3"});
  ASSERT_THAT(text, testing::EndsWith("\n"));
  text.pop_back();
  std::istringstream stream(text);
  const auto words = std::distance(std::istream_iterator<std::string>(stream), {});
  EXPECT_EQ(words + std::count(text.begin(), text.end(), '\n'), 200);
}

TEST_F(Commands, GenerateStopsAtTheEndToken) {
  const std::string text = text_of({"generate", "run", "--prompt", "the", "--max-tokens", "500",
                                    "--seed", "3", "--stop-at-eos"});
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
}

TEST_F(Commands, PrepareCountsEachSplit) {
  const json counts = answer({"prepare", "tiny.json", "--json"});
  for (const char* split : {"train", "valid", "test"}) {
    const std::string text = workspace().read(std::string(split) + ".txt");
    const json& of_split = counts.at("splits").at(split);
    EXPECT_EQ(of_split.at("bytes"), text.size());
    EXPECT_EQ(of_split.at("lines"), std::count(text.begin(), text.end(), '\n'));
    EXPECT_EQ(of_split.at("unknown"), 0);
    EXPECT_EQ(of_split.at("types"), 13);
  }
  EXPECT_EQ(counts.at("vocab_size"), 16);
  EXPECT_FALSE(text_of({"prepare", "tiny.json"}).empty());
}

TEST_F(Commands, TokenizerTrainsEncodesAndDecodes) {
  (void)text_of({"tokenizer", "train", "tiny.json", "--out", "words.txt"});
  const std::string text = "the river sang\n\nat dawn .\n";
  const std::string ids = text_of({"tokenizer", "encode", "words.txt"}, text);
  EXPECT_EQ(lines_of(ids).size(), 3U);
  EXPECT_EQ(text_of({"tokenizer", "decode", "words.txt"}, ids), text);
  EXPECT_EQ(text_of({"tokenizer", "encode", "run/checkpoints/latest/tokenizer.txt"}, text), ids);
}

TEST_F(Commands, TokenizerHandlesSentencepieceToo) {
  (void)text_of({"tokenizer", "train", "tiny.json", "--out", "pieces.model", "--set",
                 "tokenizer.type=sentencepiece", "--set", "tokenizer.vocab_size=290"});
  const std::string text = "the  river sang\n\u00fcber \u4f60\u597d\n";
  const std::string ids = text_of({"tokenizer", "encode", "pieces.model"}, text);
  EXPECT_EQ(text_of({"tokenizer", "decode", "pieces.model"}, ids), text);
}

TEST_F(Commands, ConfigShowsChecksAndDescribes) {
  EXPECT_THAT(text_of({"config", "show", "tiny.json", "--set", "optimizer.lr=0.25"}),
              testing::AllOf(HasSubstr("--set"), HasSubstr("0.25"), HasSubstr("tiny.json")));
  (void)text_of({"config", "check", "tiny.json"});
  EXPECT_TRUE(answer({"config", "schema"}).at("properties").contains("model"));
}

TEST_F(Commands, EveryReaderOfAConfigTellsItsWarningsAndObeysItsLevel) {
  const std::string late = "schedule.warmup_steps=7";
  const std::string vocabulary = "model.vocab_size=16";
  for (const Arguments& command :
       {Arguments{"prepare", "tiny.json"}, Arguments{"inspect", "tiny.json", "--set", vocabulary},
        Arguments{"config", "check", "tiny.json"}, Arguments{"eval", "run", "--data", "tiny.json"},
        Arguments{"tokenizer", "train", "tiny.json", "--out", "words.txt"},
        Arguments{"bench", "tiny.json", "--set", vocabulary, "--repeat", "1"}}) {
    SCOPED_TRACE(command.front());
    Arguments told = command;
    told.insert(told.end(), {"--set", late});
    EXPECT_THAT(workspace().run(told).err, HasSubstr("warm-up"));
    told.insert(told.end(), {"--set", "log.level=error"});
    EXPECT_EQ(workspace().run(told).err, "");
  }
}

TEST_F(Commands, HalfPrecisionOnACpuIsWarnedOfOnce) {
  for (const Arguments& command :
       {Arguments{"train", "tiny.json", "--run-dir", "half", "--set", "train.steps=1"},
        Arguments{"eval", "run"}, Arguments{"generate", "run", "--max-tokens", "1"},
        Arguments{"bench", "tiny.json", "--set", "model.vocab_size=16", "--repeat", "1"}}) {
    SCOPED_TRACE(command.front());
    Arguments told = command;
    told.insert(told.end(), {"--precision", "fp16", "--device", "cpu"});
    const std::string log = workspace().run(told).err;
    const std::size_t warning = log.find("slow on a CPU");
    EXPECT_NE(warning, std::string::npos) << log;
    EXPECT_EQ(log.find("slow on a CPU", warning + 1), std::string::npos) << log;
  }
}

TEST_F(Commands, AnswersReplaceOnlyAnswersOfTheirKind) {
  const std::string config = workspace().read("tiny.json");
  workspace().write("precious.json", config);
  for (const Arguments& command :
       {Arguments{"eval", "run", "--per-token", "precious.json"},
        Arguments{"bench", "tiny.json", "--set", "model.vocab_size=16", "--repeat", "1", "--csv",
                  "precious.json"},
        Arguments{"tokenizer", "train", "tiny.json", "--out", "precious.json"}}) {
    SCOPED_TRACE(command.front());
    const auto refused = workspace().run(command);
    EXPECT_EQ(refused.status, 2);
    EXPECT_THAT(refused.err, HasSubstr("is not replaced"));
    EXPECT_EQ(workspace().read("precious.json"), config);
    Arguments twice = command;
    *std::find(twice.begin(), twice.end(), "precious.json") = "answer-of-" + command.front();
    EXPECT_EQ(workspace().run(twice).status, 0);
    EXPECT_EQ(workspace().run(twice).status, 0);
  }
}

TEST_F(Commands, InspectCountsTheSameInConfigAndCheckpoint) {
  const json config = answer({"inspect", "tiny.json", "--json", "--set", "model.vocab_size=16"});
  const json checkpoint = answer({"inspect", "run", "--json"});
  EXPECT_EQ(config.at("parameters"), checkpoint.at("parameters"));
  EXPECT_EQ(config.at("tensors").size(), checkpoint.at("tensors").size());
  (void)answer({"prepare", "tiny.json", "--json"});
  std::int64_t caches = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(workspace() / "cache")) {
    if (entry.path().extension() == ".tokens") {
      (void)answer({"inspect", entry.path().string(), "--json"});
      ++caches;
    }
  }
  EXPECT_GE(caches, 3);
}

TEST_F(Commands, BenchMeasuresEachRowInTheOrderAsked) {
  for (const char* mode : {"train", "infer", "decode"}) {
    const json rows = answer({"bench", "tiny.json", "--set", "model.vocab_size=50", "--mode", mode,
                              "--lengths", "32,16", "--batch-size", "2", "--attentions",
                              "softmax,t2", "--repeat", "1", "--csv", "rows.csv", "--json"})
                          .at("rows");
    ASSERT_EQ(rows.size(), 4U);
    const std::vector<std::pair<std::string, int>> expected{
        {"softmax", 32}, {"softmax", 16}, {"t2", 32}, {"t2", 16}};
    for (std::size_t i = 0; i < rows.size(); ++i) {
      EXPECT_EQ(rows[i].at("attention"), expected[i].first);
      EXPECT_EQ(rows[i].at("length"), expected[i].second);
      EXPECT_EQ(rows[i].at("batch_size"), 2);
      EXPECT_EQ(rows[i].at("mode"), mode);
      EXPECT_EQ(rows[i].at("precision"), "fp32");
      EXPECT_GE(rows[i].at("tokens_per_s"), rows[i].at("tokens_per_s_median"));
      EXPECT_GT(rows[i].at("tokens_per_s_median"), 0);
      EXPECT_GT(rows[i].at("peak_memory_bytes"), 1 << 20);
      EXPECT_GT(rows[i].at("gflops"), 0);
      EXPECT_GT(rows[i].at("peak_share"), 0);
    }
    EXPECT_EQ(lines_of(workspace().read("rows.csv")).size(), 5U);
  }
}

TEST_F(Commands, BenchTakesTheConfigsOwnModelAndShape) {
  const json rows = answer({"bench", "tiny.json", "--set", "model.vocab_size=50", "--repeat", "1",
                            "--precision", "bf16", "--json"})
                        .at("rows");
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0].at("attention"), "diag/norm");
  EXPECT_EQ(rows[0].at("length"), 24);
  EXPECT_EQ(rows[0].at("batch_size"), 4);
  EXPECT_EQ(rows[0].at("precision"), "bf16");
}

}  // namespace
}  // namespace transnormer
