// eval: several checkpoints and texts, its tables, and what it records in a run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cli/workspace.h"

namespace transnormer {
namespace {

namespace fs = std::filesystem;
using json = nlohmann::ordered_json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kFirst = "run/checkpoints/step-00000003";
constexpr const char* kSecond = "run/checkpoints/step-00000006";

class EvalCommand : public TrainedRun {
 protected:
  static Outcome eval(Arguments arguments, const std::string& input = "") {
    arguments.insert(arguments.begin(), "eval");
    Outcome outcome = workspace().run(arguments, input);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return outcome;
  }
  static json answer(Arguments arguments, const std::string& input = "") {
    arguments.push_back("--json");
    return json::parse(eval(std::move(arguments), input).out);
  }
  static std::vector<json> recorded(const std::string& file = "run/evals.jsonl") {
    std::vector<json> lines;
    if (fs::exists(workspace() / file)) {
      for (const std::string& line : lines_of(workspace().read(file))) {
        lines.push_back(json::parse(line));
      }
    }
    return lines;
  }
  // A run `open` whose model learned no line ends, with the tokenizer of `run`.
  static void train_without_line_ends() {
    if (!fs::exists(workspace() / "open")) {
      const Outcome outcome = workspace().run(
          {"train", "tiny.json", "--run-dir", "open", "--set", "data.line_end=none"});
      ASSERT_EQ(outcome.status, 0) << outcome.err;
    }
  }
  static std::string place(const std::string& name) {
    return fs::canonical(workspace() / name)
        .lexically_relative(fs::canonical(workspace().path()))
        .string();
  }
};

// Two words of the text are no words of its own dictionary.
std::string another_config() {
  return R"({"include": "tiny.json", "data": {"train": "other.txt"}, "train": {"steps": 3}})";
}

TEST_F(EvalCommand, FiveCheckpointsOnTwoTextsHaveTheAnswersOfEachAlone) {
  workspace().write("other.txt", workspace().read("train.txt") + "dusk fell\n");
  workspace().write("other.json", another_config());
  ASSERT_EQ(workspace().run({"train", "other.json", "--run-dir", "other"}).status, 0);
  ASSERT_EQ(workspace()
                .run({"train", "tiny.json", "--run-dir", "wide", "--set", "model.dim=32", "--set",
                      "data.tokens_per_sample=16"})
                .status,
            0);
  const std::vector<std::string> checkpoints{kFirst, "other", kSecond, "wide", "run"};
  const std::vector<std::string> texts{"test.txt", "valid.txt"};
  Arguments all = checkpoints;
  all.insert(all.end(), {"--text", texts[0], "--text", texts[1]});
  const json results = answer(all).at("results");
  ASSERT_EQ(results.size(), 10U);
  for (std::size_t i = 0; i < results.size(); ++i) {
    const std::string& checkpoint = checkpoints[i / 2];
    json expected = {
        {"checkpoint",
         place(checkpoint.starts_with("run/") ? checkpoint : checkpoint + "/checkpoints/best")},
        {"text", texts[i % 2]}};
    expected.update(answer({checkpoint, "--text", texts[i % 2]}));
    EXPECT_EQ(results[i].dump(), expected.dump());  // to the bit, and in this order
  }
  const Outcome shared = eval({kFirst, "other", kSecond, "wide", "run", "--text", texts[0],
                               "--text", texts[1], "--nproc", "2", "--json"});
  EXPECT_EQ(json::parse(shared.out).at("results").dump(), results.dump());
}

TEST_F(EvalCommand, AGlobIsItsFilesAndOneOfEachIsThePlainAnswer) {
  fs::create_directories(workspace() / "texts");
  workspace().write("texts/b.txt", "the river sang\n");
  workspace().write("texts/a.txt", "at dawn .\n");
  const json results = answer({"run", "--text", "texts/*.txt"}).at("results");
  ASSERT_EQ(results.size(), 2U);
  EXPECT_EQ(results[0].at("text"), "texts/a.txt");
  EXPECT_EQ(results[1].at("text"), "texts/b.txt");
  EXPECT_EQ(answer({"run", "--text", "texts/a*"}), answer({"run", "--text", "texts/a.txt"}));
  expect_refused(
      workspace(),
      {"eval", "run", "--text", "texts/*.csv", "--text", "texts/a.txt", "--text", "gone"},
      {"no file matches", "gone: there is no such file"});
  workspace().write("texts [1]/c.txt", "the river sang\n");
  workspace().write("texts [1]/d.txt", "at dawn .\n");
  const json escaped = answer({"run", "--text", R"(texts \[1\]/*.txt)"}).at("results");
  ASSERT_EQ(escaped.size(), 2U);
  EXPECT_EQ(escaped[1].at("text"), "texts [1]/d.txt");
  EXPECT_EQ(answer({"run", "--text", R"(texts \[1\]/d.txt)"}),
            answer({"run", "--text", "texts/a.txt"}));
}

TEST_F(EvalCommand, ASplitIsATextByItsName) {
  for (const json& result : answer({kFirst, kSecond, "--split", "valid"}).at("results")) {
    EXPECT_EQ(result.at("text"), "valid");
    EXPECT_EQ(result.at("split"), "valid");
  }
  for (const json& result : answer({kFirst, kSecond, "--text", "test.txt"}).at("results")) {
    EXPECT_FALSE(result.contains("split"));
  }
}

TEST_F(EvalCommand, LineEndsOfAnotherConfigAreCodedAsInTraining) {
  train_without_line_ends();
  const Outcome silent = eval({"open", "--data", "tiny.json", "--json"});
  EXPECT_EQ(json::parse(silent.out), answer({"open"}));
  EXPECT_THAT(silent.err, Not(HasSubstr("data.line_end")));
  workspace().write("ends.json", R"({"include": "tiny.json", "data": {"line_end": "eos"}})");
  const Outcome other = eval({"open", "--data", "ends.json", "--json"});
  EXPECT_NE(json::parse(other.out), json::parse(silent.out));
  EXPECT_THAT(other.err, AllOf(HasSubstr("data.line_end is \"eos\" (ends.json), but "),
                               HasSubstr("was trained with \"none\"")));
  EXPECT_THAT(eval({"run", "--data", "ends.json"}).err, Not(HasSubstr("data.line_end")));
}

TEST_F(EvalCommand, StandardInputIsATextOnce) {
  const std::string text = workspace().read("test.txt");
  EXPECT_EQ(answer({"run", "--text", "-"}, text), answer({"run", "--text", "test.txt"}));
  const json both = answer({kFirst, kSecond, "--text", "-"}, text).at("results");
  ASSERT_EQ(both.size(), 2U);
  EXPECT_EQ(both[0].at("text"), "-");
  EXPECT_EQ(both[1].at("nll"), answer({kSecond, "--text", "test.txt"}).at("nll"));
  expect_refused(workspace(), {"eval", "run", "--text", "-", "--text", "-"}, {"only once"}, text);
  expect_refused(workspace(), {"eval", "run", "--text", "-", "--nproc", "2"}, {"as a file"}, text);
}

TEST_F(EvalCommand, APipeThatIsReadInSeveralWaysIsRefused) {
  workspace().write("another.txt", workspace().read("train.txt") + "dusk fell\n");
  ASSERT_EQ(workspace()
                .run({"train", "tiny.json", "--run-dir", "another", "--set",
                      "data.train=[\"another.txt\"]", "--set", "train.steps=1"})
                .status,
            0);
  train_without_line_ends();
  const std::vector<std::pair<std::string, std::string>> reasons{
      {"another", "in several ways (tokenizer);"}, {"open", "in several ways (data.line_end);"}};
  for (const auto& [other, reason] : reasons) {
    ASSERT_EQ(::mkfifo((workspace() / "pipe").c_str(), 0600), 0);
    std::thread writer([] { workspace().write("pipe", "the river sang\n"); });
    const Outcome outcome = workspace().run({"eval", "run", other, "--text", "pipe"});
    writer.join();
    fs::remove(workspace() / "pipe");
    EXPECT_EQ(outcome.status, 2);
    EXPECT_EQ(outcome.out, "");
    EXPECT_THAT(outcome.err, HasSubstr(reason));
  }
}

TEST_F(EvalCommand, ABadFifthCheckpointIsToldBeforeTheFirstIsScored) {
  for (const char* form : {"--json", "--table", "--split=test"}) {
    expect_refused(workspace(),
                   {"eval", kFirst, kSecond, "run", "run/checkpoints/latest", "none", "gone", form},
                   {"none: there is no such checkpoint", "gone: there is no such checkpoint"});
  }
  expect_refused(workspace(),
                 {"eval", kFirst, kSecond, "--text", "test.txt", "--text", "missing.txt"},
                 {"missing.txt"});
  expect_refused(workspace(), {"eval", kFirst, kSecond, "--per-token", "losses.jsonl"},
                 {"--per-token: the file takes the losses of one checkpoint on one text, and 2"});
  expect_refused(workspace(), {"eval", "run", "--json", "--table"}, {"--table"});
}

TEST_F(EvalCommand, SeveralResultsAreLinesForPeople) {
  const std::vector<std::string> lines =
      lines_of(eval({kFirst, "run", "--text", "test.txt", "--text", "valid.txt"}).out);
  ASSERT_EQ(lines.size(), 5U);
  EXPECT_THAT(lines[0], AllOf(HasSubstr("checkpoint"), HasSubstr("step"), HasSubstr("tokens"),
                              HasSubstr("token perplexity"), HasSubstr("word perplexity"),
                              HasSubstr("bits a byte")));
  EXPECT_THAT(lines[1], AllOf(HasSubstr(kFirst), HasSubstr(" 3 "), HasSubstr("test.txt")));
  EXPECT_THAT(lines[4], AllOf(testing::StartsWith("run "), HasSubstr("valid.txt")));
  // Columns stand below each other, whatever is in them.
  for (const std::string& line : lines) {
    EXPECT_EQ(line.size() - (line.find("\u00b1") == std::string::npos ? 0 : 1), lines[0].size());
  }
}

std::vector<std::string> cells(const std::string& row) {
  std::vector<std::string> found;
  std::size_t begin = row.find('|') + 1;
  for (std::size_t end = row.find('|', begin); end != std::string::npos;
       end = row.find('|', begin)) {
    const std::string cell = row.substr(begin, end - begin);
    const std::size_t first = cell.find_first_not_of(' ');
    found.push_back(cell.substr(first, cell.find_last_not_of(' ') - first + 1));
    begin = end + 1;
  }
  return found;
}

TEST_F(EvalCommand, AMarkdownTableMarksTheBestOfEachText) {
  const Arguments asked{kFirst, kSecond, "--text", "test.txt", "--text", "valid.txt"};
  Arguments table = asked;
  table.push_back("--table");
  const std::vector<std::string> lines = lines_of(eval(table).out);
  ASSERT_EQ(lines.size(), 6U);
  EXPECT_THAT(cells(lines[0]), ElementsAre("checkpoint", "step", "text", "tokens", "nll",
                                           "token perplexity", "word perplexity", "bits a byte"));
  EXPECT_THAT(lines[1], HasSubstr("---"));
  const json results = answer(asked).at("results");
  for (std::size_t row = 0; row < 4; ++row) {
    const std::vector<std::string> found = cells(lines[row + 2]);
    ASSERT_EQ(found.size(), 8U);
    EXPECT_EQ(found[0], row < 2 ? kFirst : kSecond);
    EXPECT_EQ(found[1], row < 2 ? "3" : "6");
    EXPECT_EQ(found[2], row % 2 == 0 ? "test.txt" : "valid.txt");
    const auto nll = [&results](std::size_t of) { return results[of].at("nll").get<double>(); };
    const bool best = nll(row) <= nll((row + 2) % 4);
    for (std::size_t column = 4; column < 8; ++column) {
      EXPECT_EQ(found[column].starts_with("**"), best) << lines[row + 2];
    }
    EXPECT_FALSE(found[3].starts_with("**"));
  }
  // One checkpoint is the best of nothing.
  EXPECT_THAT(eval({"run", "--table"}).out, Not(HasSubstr("**")));
}

TEST_F(EvalCommand, TokensOfOtherTokenizersAreNotCompared) {
  ASSERT_EQ(workspace()
                .run({"train", "tiny.json", "--run-dir", "pieces", "--set",
                      "tokenizer.type=sentencepiece", "--set", "tokenizer.vocab_size=290", "--set",
                      "train.steps=1", "--set", "validation.every=0"})
                .status,
            0);
  const std::vector<std::string> lines =
      lines_of(eval({"run", "pieces", "--text", "test.txt", "--table"}).out);
  ASSERT_EQ(lines.size(), 4U);
  int bold_words = 0;
  for (std::size_t row = 2; row < 4; ++row) {
    const std::vector<std::string> found = cells(lines[row]);
    EXPECT_THAT(found[4], Not(HasSubstr("**")));
    EXPECT_THAT(found[5], Not(HasSubstr("**")));
    bold_words += found[6].starts_with("**") ? 1 : 0;
  }
  EXPECT_EQ(bold_words, 1);
}

TEST_F(EvalCommand, ResultsBeforeTheLastAreToldWhileTheRestIsScored) {
  const std::string log = eval({kFirst, kSecond, "--text", "test.txt", "--json"}).err;
  EXPECT_THAT(log, AllOf(HasSubstr(place(kFirst) + " on test.txt:"),
                         HasSubstr(place(kSecond) + " on test.txt:")));
  EXPECT_THAT(eval({"run"}).err, HasSubstr("checkpoint " + place("run/checkpoints/best")));
}

TEST_F(EvalCommand, TheLossOfEachTokenStandsBesideItsPiece) {
  workspace().write("words.txt", "the river zebra\n");
  (void)eval({"run", "--text", "words.txt", "--per-token", "pieces.jsonl"});
  std::vector<std::string> pieces;
  for (const std::string& line : lines_of(workspace().read("pieces.jsonl"))) {
    const json token = json::parse(line);
    std::vector<std::string> keys;
    for (const auto& [key, value] : token.items()) {
      keys.push_back(key);
    }
    EXPECT_THAT(keys, ElementsAre("index", "id", "piece", "nll"));
    pieces.push_back(token.at("piece"));
  }
  EXPECT_THAT(pieces, ElementsAre("the", "river", "<unk>", "</s>"));
}

TEST_F(EvalCommand, AnswersOnARunsOwnSplitsAreRecordedThere) {
  const std::size_t before = recorded().size();
  const json best = answer({"run"});
  const json valid = answer({kFirst, "--split", "valid", "--context-window", "3", "--precision",
                             "bf16", "--device", "cpu"});
  const std::vector<json> lines = recorded();
  ASSERT_EQ(lines.size(), before + 2);
  const json& own = lines[before];
  EXPECT_EQ(own.at("split"), "test");
  EXPECT_EQ(own.at("weights"), "raw");
  EXPECT_EQ(own.at("precision"), "fp32");
  EXPECT_EQ(own.at("model_sha256").get<std::string>().size(), 64U);
  for (const auto& [key, value] : best.items()) {
    EXPECT_EQ(own.at(key), value) << key;
  }
  const json& other = lines[before + 1];
  EXPECT_EQ(other.at("step"), 3);
  EXPECT_EQ(other.at("checkpoint"), "step-00000003");
  EXPECT_EQ(other.at("split"), "valid");
  EXPECT_EQ(other.at("precision"), "bf16");
  EXPECT_EQ(other.at("context_window"), 3);
  EXPECT_EQ(other.at("nll"), valid.at("nll"));
  EXPECT_NE(other.at("text_digest"), own.at("text_digest"));

  (void)answer({kFirst, kSecond});
  EXPECT_EQ(recorded().size(), before + 4);
  const ProgramOptions within{workspace() / "run/checkpoints", ""};
  EXPECT_EQ(run_program({"eval", "step-00000003"}, within).status, 0);
  EXPECT_EQ(recorded().size(), before + 5);
  // Texts that are not the run's own.
  (void)answer({"run", "--text", "test.txt"});
  (void)answer({"run", "--data", "tiny.json"});
  (void)answer({"run", "--set", "data.test=[\"valid.txt\"]"});
  fs::copy(workspace() / kFirst, workspace() / "alone", fs::copy_options::recursive);
  (void)answer({"alone"});
  EXPECT_EQ(recorded().size(), before + 5);
}

TEST_F(EvalCommand, EvaluationsAtOnceRecordALineEach) {
  const std::size_t before = recorded().size();
  std::vector<std::unique_ptr<Program>> programs;
  for (int i = 0; i < 5; ++i) {
    programs.push_back(std::make_unique<Program>(Arguments{"eval", "run", "--split", "valid"},
                                                 ProgramOptions{workspace().path(), ""}));
  }
  for (const auto& program : programs) {
    EXPECT_EQ(program->wait().status, 0);
  }
  EXPECT_EQ(recorded().size(), before + 5);  // and each of them is JSON
}

TEST_F(EvalCommand, WhatCannotBeRecordedIsAWarning) {
  fs::copy(workspace() / "run", workspace() / "noted", fs::copy_options::recursive);
  workspace().write("noted/evals.jsonl", "my own notes\n");
  const Outcome outcome = eval({"noted", "--json"});
  EXPECT_EQ(outcome.out, eval({"run", "--json"}).out);
  EXPECT_THAT(outcome.err, HasSubstr("evals.jsonl: no line can be added: it holds something else"));
  EXPECT_EQ(workspace().read("noted/evals.jsonl"), "my own notes\n");
}

TEST_F(EvalCommand, OfAPartOfTheValidationTextScoresAllOfIt) {
  const Outcome trained =
      workspace().run({"train", "tiny.json", "--run-dir", "part", "--set",
                       "validation.max_tokens=50", "--set", R"(validation.prompts=["the river"])"});
  ASSERT_EQ(trained.status, 0) << trained.err;
  EXPECT_THAT(trained.err, AllOf(HasSubstr("validates on 48 of "), HasSubstr("sample 1: the river"),
                                 Not(HasSubstr("warning"))));
  EXPECT_EQ(answer({"part/checkpoints/step-00000006", "--split", "valid"}),
            answer({kSecond, "--split", "valid"}));
  double first_windows = 0;
  (void)eval({kSecond, "--split", "valid", "--per-token", "valid.jsonl"});
  const std::vector<std::string> lines = lines_of(workspace().read("valid.jsonl"));
  for (std::size_t i = 0; i < 48; ++i) {
    first_windows += json::parse(lines.at(i)).at("nll").get<double>();
  }
  for (const std::string& line : lines_of(workspace().read("part/metrics.jsonl"))) {
    const json event = json::parse(line);
    if (event.at("kind") == "valid" && event.at("step") == 6) {
      EXPECT_NEAR(event.at("loss").get<double>(), first_windows / 48, 1e-6);
    }
  }
}

}  // namespace
}  // namespace transnormer
