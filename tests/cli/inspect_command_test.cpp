// inspect: where a run stands, what a cache tells, how long a run will take.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/workspace.h"

namespace transnormer {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::StartsWith;

class Inspect : public TrainedRun {
 protected:
  static json answer(const Arguments& arguments) {
    const Outcome outcome = workspace().run(arguments);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return json::parse(outcome.out);
  }
};

TEST_F(Inspect, BeginsWithWhereTheRunStands) {
  const std::string text = workspace().run({"inspect", "run"}).out;
  EXPECT_THAT(text,
              StartsWith("run              run: step 6 of 6, finished: reached train.steps, 6\n"
                         "trained          "));
  EXPECT_THAT(text, HasSubstr("\nvalidation       last "));
  const json run = answer({"inspect", "run", "--json"}).at("run");
  EXPECT_EQ(run.at("name"), "run");
  EXPECT_EQ(run.at("step"), 6);
  EXPECT_EQ(run.at("steps"), 6);
  EXPECT_EQ(run.at("finished"), true);
  EXPECT_EQ(run.at("running"), false);
  EXPECT_EQ(run.at("last_validation").at("step"), 6);
  EXPECT_GT(run.at("best_validation").at("loss"), 0);
  EXPECT_GT(run.at("saved_at"), 1'000'000'000);
  EXPECT_FALSE(answer({"inspect", "run/checkpoints/step-00000006", "--json"}).contains("run"));
}

TEST_F(Inspect, SaysThatARunWasStopped) {
  Program program({"train", "tiny.json", "--run-dir", "stopped", "--set", "train.steps=1000000",
                   "--set", "checkpoint.every=5", "--set", "validation.every=0"},
                  {.directory = workspace().path(), .input = ""});
  const auto metrics = workspace() / "stopped/metrics.jsonl";
  while (program.running() &&
         (!std::filesystem::exists(metrics) ||
          workspace().read("stopped/metrics.jsonl").find("\"saved\"") == std::string::npos)) {
  }
  EXPECT_THAT(workspace().run({"inspect", "stopped"}).out, HasSubstr(" of 1,000,000, running\n"));
  program.send(SIGTERM);
  EXPECT_EQ(program.wait().status, 143);
  EXPECT_THAT(workspace().run({"inspect", "stopped"}).out,
              HasSubstr(" of 1,000,000, stopped by SIGTERM at step "));
}

TEST_F(Inspect, FindsTheVocabularyInACacheAndMakesNone) {
  const std::string cache = "data.cache_dir=fresh-cache";
  expect_refused(workspace(), {"inspect", "tiny.json", "--set", cache},
                 {"model.vocab_size: the size of the vocabulary is not known before"});
  EXPECT_FALSE(std::filesystem::exists(workspace() / "fresh-cache"));
  const json prepared = answer({"prepare", "tiny.json", "--json", "--set", cache});
  const auto before = workspace().content();
  EXPECT_EQ(answer({"inspect", "tiny.json", "--json", "--set", cache}).at("vocab_size"),
            prepared.at("vocab_size"));
  EXPECT_EQ(
      workspace().run({"bench", "tiny.json", "--json", "--repeat", "1", "--set", cache}).status, 0);
  EXPECT_EQ(workspace().content(), before);
  // A tokenizer of other settings is another one.
  expect_refused(workspace(),
                 {"inspect", "tiny.json", "--set", cache, "--set", "tokenizer.min_count=3"},
                 {"not known before"});
}

TEST_F(Inspect, TellsTheHoursOfTheRunAsConfigured) {
  const Arguments at_speed{"inspect", "tiny.json",        "--set",          "model.vocab_size=16",
                           "--set",   "train.steps=1000", "--tokens-per-s", "10"};
  // 1000 updates of 4 samples of 24 tokens
  EXPECT_THAT(workspace().run(at_speed).out,
              HasSubstr("\nrun as configured 96,000 tokens, 2.7 hours\n"));
  Arguments as_json = at_speed;
  as_json.emplace_back("--json");
  EXPECT_NEAR(answer(as_json).at("hours"), 96000 / 10.0 / 3600, 1e-9);
  // The cache tells how long two epochs are.
  ASSERT_EQ(workspace().run({"prepare", "tiny.json"}).status, 0);
  const json two = answer(
      {"inspect", "tiny.json", "--json", "--set", "train.steps=0", "--set", "train.max_epochs=2"});
  const json tokens =
      answer({"prepare", "tiny.json", "--json"}).at("splits").at("train").at("tokens");
  const std::int64_t samples = (tokens.get<std::int64_t>() + 23) / 24;
  EXPECT_EQ(two.at("updates"), (2 * samples + 3) / 4);
  EXPECT_EQ(two.at("hours"), nullptr);
  expect_refused(workspace(), {"inspect", "run", "--tokens-per-s", "10"}, {"--tokens-per-s: "});
}

TEST_F(Inspect, BenchTellsTheHoursOfTheConfigsOwnModelOnly) {
  const Arguments own{"bench", "tiny.json", "--json", "--repeat", "1"};
  const json answered = answer(own);
  const double speed = answered.at("rows").at(0).at("tokens_per_s_median");
  EXPECT_NEAR(answered.at("hours").get<double>(), 6 * 4 * 24 / speed / 3600, 1e-9);
  Arguments others = own;
  others.insert(others.end(), {"--attentions", "norm"});
  EXPECT_EQ(answer(others).at("hours"), nullptr);
}

TEST_F(Inspect, SetsThatACommandDoesNotReadAreTold) {
  const auto said = [](Arguments arguments, const std::string& set) {
    arguments.insert(arguments.end(), {"--set", set});
    return workspace().run(arguments).err;
  };
  const std::string lr = "--set optimizer.lr: `eval` does not read it, so it changes nothing";
  EXPECT_THAT(said({"eval", "run", "--json"}, "optimizer.lr=1"), HasSubstr(lr));
  EXPECT_THAT(said({"eval", "run", "--json", "--data", "tiny.json"}, "optimizer.lr=1"),
              HasSubstr(lr));
  EXPECT_THAT(said({"prepare", "tiny.json"}, "model.dim=32"),
              HasSubstr("`prepare` does not read it"));
  EXPECT_EQ(said({"prepare", "tiny.json"}, "data.tokens_per_sample=16").find("does not read"),
            std::string::npos);
  EXPECT_EQ(said({"eval", "run", "--json"}, "validation.batch_size=2").find("does not read"),
            std::string::npos);
}

}  // namespace
}  // namespace transnormer
