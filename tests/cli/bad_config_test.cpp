// Faults of the command line and of configs: each refused in one clear line, before any work.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "cli/workspace.h"

namespace transnormer {
namespace {

class BadConfig : public testing::Test {
 protected:
  void refuse(const std::string& config, const std::vector<std::string>& words) {
    workspace_.write("bad.json", config);
    expect_refused(workspace_, {"train", "bad.json", "--run-dir", "new"}, words);
  }
  void refuse_set(const std::string& assignment, const std::string& words) {
    expect_refused(workspace_, {"train", "tiny.json", "--run-dir", "new", "--set", assignment},
                   {words});
  }
  Workspace workspace_;
};

TEST_F(BadConfig, UnknownKeysAreNamedWithTheNearestKnown) {
  refuse(R"({"model": {"dimm": 64}})", {"model.dim"});
  refuse(R"({"modle": {}})", {"model"});
  refuse_set("model.heds=4", "model.heads");
}

TEST_F(BadConfig, WrongTypesAreNamed) {
  refuse(R"({"model": {"layers": "six"}})", {"model.layers"});
  refuse(R"({"model": {"layers": 2.5}})", {"model.layers"});
  refuse(R"({"model": 7})", {"model"});
  refuse(R"([])", {"bad.json"});
  refuse_set("model.lrpe=perhaps", "model.lrpe");
}

TEST_F(BadConfig, DuplicateKeysAreNamed) {
  refuse(R"({"model": {"dim": 64, "dim": 128}})", {"model.dim"});
}

TEST_F(BadConfig, EveryCommandThatReadsAConfigRefusesABadOne) {
  workspace_.write("bad.json", R"({"model": {"dimm": 64}})");
  expect_refused(workspace_, {"bench", "bad.json"}, {"model.dimm"});
  expect_refused(workspace_, {"prepare", "bad.json"}, {"model.dimm"});
  expect_refused(workspace_, {"inspect", "bad.json"}, {"model.dimm"});
  expect_refused(workspace_, {"config", "show", "bad.json"}, {"model.dimm"});
  expect_refused(workspace_, {"config", "check", "bad.json"}, {"model.dimm"});
  expect_refused(workspace_, {"config", "schema", "bad.json"}, {"model.dimm"});
  expect_refused(workspace_, {"tokenizer", "train", "bad.json", "--out", "t"}, {"model.dimm"});
}

TEST_F(BadConfig, EveryFaultIsReportedInOneGo) {
  workspace_.write("bad.json",
                   R"({"model": {"dimm": 64, "layers": "six"}, "optimizer": {"lr": -1}})");
  const Outcome outcome = workspace_.run({"config", "check", "bad.json"});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_EQ(lines_of(outcome.err).size(), 3U) << outcome.err;
  for (const char* key : {"dimm", "model.layers", "optimizer.lr"}) {
    EXPECT_THAT(outcome.err, testing::HasSubstr(key));
  }
}

TEST_F(BadConfig, ValuesOutOfRangeAreNamed) {
  refuse(R"({"model": {"dropout": 1.5}})", {"model.dropout"});
  refuse(R"({"model": {"variant": "t3"}})", {"model.variant"});
  refuse(R"({"train": {"steps": -5}})", {"train.steps"});
  refuse(R"({"checkpoint": {"keep_last": 1}})", {"checkpoint.keep_last"});
}

TEST_F(BadConfig, NumbersThatAreNoneAreRefused) {
  refuse_set("optimizer.lr=nan", "optimizer.lr");
  refuse_set("optimizer.lr=inf", "optimizer.lr");
  refuse_set("model.norm_eps=-NaN", "model.norm_eps");
  refuse_set("optimizer.betas=[0.9, NaN]", "optimizer.betas");
  refuse(R"({"optimizer": {"lr": NaN}})", {"bad.json"});
  refuse(R"({"optimizer": {"lr": 1e999}})", {"lr"});
}

TEST_F(BadConfig, HeadsMustDivideTheWidth) {
  refuse(R"({"model": {"dim": 64, "heads": 7}})", {"model.heads"});
}

TEST_F(BadConfig, PartsThatContradictTheVariantPointToCustom) {
  refuse(R"({"model": {"variant": "t2", "norm": "layer"}})", {"custom"});
}

TEST_F(BadConfig, FilesThatAreNoConfigsAreNamed) {
  expect_refused(workspace_, {"train", "none.json"}, {"none.json"});
  expect_refused(workspace_, {"train", "."}, {"."});
  expect_refused(workspace_, {"train", "train.txt"}, {"train.txt"});
  refuse("", {"bad.json"});
  refuse(R"({"model": {"dim": 64)", {"bad.json"});
  refuse(std::string("{\"run_name\": \"\xff\xfe\"}"), {"bad.json"});
  refuse(R"({"include": "missing.json"})", {"missing.json"});
  refuse(R"({"include": "bad.json"})", {"bad.json"});
}

TEST_F(BadConfig, SetMustBeAnAssignment) {
  refuse_set("model.dim", "model.dim");
  refuse_set("=5", "=5");
  refuse_set("model=5", "model");
}

TEST_F(BadConfig, AbsurdSizesAreRefusedWithTheMemoryTheyTake) {
  for (const char* command : {"train", "bench"}) {
    expect_refused(
        workspace_,
        {command, "tiny.json", "--set", "model.dim=4000000", "--set", "model.vocab_size=100"},
        {"iB"});
    expect_refused(
        workspace_,
        {command, "tiny.json", "--set", "model.vocab_size=2000000000", "--set", "model.dim=4096"},
        {"iB"});
  }
  expect_refused(
      workspace_,
      {"bench", "tiny.json", "--set", "model.vocab_size=100", "--lengths", "999999999999"}, {"iB"});
  expect_refused(workspace_,
                 {"bench", "tiny.json", "--set", "model.vocab_size=100", "--mode", "infer",
                  "--batch-size", "999999999999"},
                 {"iB"});
}

TEST_F(BadConfig, CommandsAndOptionsThatAreNotThereAreRefused) {
  expect_refused(workspace_, {}, {"--help"});
  expect_refused(workspace_, {"trian", "tiny.json"}, {"trian"});
  expect_refused(workspace_, {"train"}, {"CONFIG"});
  expect_refused(workspace_, {"train", "tiny.json", "--sets", "a=b"}, {"--sets"});
  expect_refused(workspace_, {"train", "tiny.json", "--device", "tpu"}, {"tpu"});
  expect_refused(workspace_, {"train", "tiny.json", "--precision", "fp8"}, {"fp8"});
  expect_refused(workspace_, {"train", "tiny.json", "--resume", "elsewhere"}, {"elsewhere"});
  expect_refused(workspace_, {"eval"}, {"CHECKPOINT"});
  expect_refused(workspace_, {"bench", "tiny.json", "--lengths", "many"}, {"--lengths"});
}

TEST_F(BadConfig, EmptyNamesOfFilesAreRefused) {
  expect_refused(workspace_, {"train", ""}, {"CONFIG"});
  expect_refused(workspace_, {"train", "tiny.json", "--run-dir", ""}, {"--run-dir"});
  expect_refused(workspace_, {"eval", "run", "--text", ""}, {"--text"});
  expect_refused(workspace_, {"eval", "run", "--data="}, {"--data"});
  expect_refused(workspace_, {"eval", "run", "--per-token", ""}, {"--per-token"});
  expect_refused(workspace_, {"generate", "run", "--prompt-file", ""}, {"--prompt-file"});
  expect_refused(workspace_, {"tokenizer", "train", "tiny.json", "--out", ""}, {"--out"});
  expect_refused(workspace_, {"bench", "tiny.json", "--csv", ""}, {"--csv"});
}

TEST_F(BadConfig, BenchRefusesWhatItCannotMeasure) {
  const std::string vocabulary = "model.vocab_size=50";
  expect_refused(workspace_, {"bench", "tiny.json"}, {"vocab_size"});
  expect_refused(workspace_, {"bench", "tiny.json", "--set", vocabulary, "--mode", "walk"},
                 {"walk"});
  expect_refused(workspace_, {"bench", "tiny.json", "--set", vocabulary, "--lengths", "16,0"},
                 {"--lengths"});
  expect_refused(workspace_, {"bench", "tiny.json", "--set", vocabulary, "--batch-size", "-1"},
                 {"--batch-size"});
  expect_refused(workspace_, {"bench", "tiny.json", "--set", vocabulary, "--repeat", "0"},
                 {"--repeat"});
  expect_refused(workspace_, {"bench", "tiny.json", "--set", vocabulary, "--attentions", "t2,x"},
                 {"\"x\""});
}

TEST_F(BadConfig, CudaIsRefusedWhereThereIsNone) {
  if (std::filesystem::exists("/dev/nvidiactl")) {
    GTEST_SKIP() << "this machine has a GPU";
  }
  expect_refused(workspace_, {"train", "tiny.json", "--device", "cuda"}, {"cuda"});
  expect_refused(workspace_,
                 {"bench", "tiny.json", "--set", "model.vocab_size=50", "--device", "cuda"},
                 {"cuda"});
}

}  // namespace
}  // namespace transnormer
