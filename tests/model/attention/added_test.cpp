// An attention and a block that the program does not know (moving_average.cpp, gated_mean.cpp) go
// through training, checkpoint, resume, evaluation and inspect like its own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "cli/answer.h"
#include "cli/commands.h"
#include "model/attention/registry.h"
#include "model/models.h"
#include "train/small_run.h"
#include "util/error.h"

namespace transnormer::test {
namespace {

using Json = nlohmann::json;
using testing::HasSubstr;

const std::vector<std::string> kSets{
    "model.early={\"attention\": \"moving_average\", \"window\": 3}",
    "model.late={\"attention\": \"gated_mean\", \"expansion\": 3}"};

std::vector<std::string> with(std::vector<std::string> sets, const std::string& set) {
  sets.push_back(set);
  return sets;
}

TEST(AddedAttentions, TrainAndResumeToTheSameBits) {
  const SmallRun runs;
  ASSERT_EQ(runs.train("whole", kSets), ExitStatus::done);
  ASSERT_EQ(runs.train("parts", with(kSets, "train.steps=3")), ExitStatus::done);
  ASSERT_EQ(runs.train("parts", kSets), ExitStatus::done);
  expect_same_weights(runs, "whole", "parts", 6);
  expect_same_state(runs, "whole", "parts", 6);
}

TEST(AddedAttentions, LearnAndReportTheGroupsThatTheyDeclare) {
  const SmallRun runs;
  const auto run = set_up(runs.request("run", with(kSets, "train.steps=60")));
  Recorded recorded;
  EXPECT_EQ(run_loop(*run, recorded), ExitStatus::done);
  EXPECT_LT(recorded.train.back().loss, recorded.train.front().loss - 0.5);
  std::vector<std::string> groups;
  for (const auto& [name, stats] : recorded.train.back().gradients) {
    groups.push_back(name);
  }
  EXPECT_THAT(groups,
              testing::ElementsAre("all", "layers.0", "layers.0.ffn", "layers.0.v_proj", "layers.1",
                                   "layers.1.gate", "layers.1.out", "layers.1.value"));
}

TEST(AddedAttentions, MayNotChangeOnResume) {
  const SmallRun runs;
  ASSERT_EQ(runs.train("run", with(kSets, "train.steps=3")), ExitStatus::done);
  try {
    (void)runs.train("run", {kSets[0], kSets[1], "model.early.window=4"});
    FAIL() << "was taken";
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), HasSubstr("model.early.window"));
  }
}

TEST(AddedAttentions, AreEvaluatedInspectedAndTimedByTheCommands) {
  const SmallRun runs;
  ASSERT_EQ(runs.train("run", kSets), ExitStatus::done);
  const std::string checkpoint = runs.checkpoint("run", 6).string();
  const Json scores = answer_of(cli::add_eval, {"eval", checkpoint, "--text",
                                                (runs.path() / "valid.txt").string(), "--json"});
  EXPECT_GT(scores.at("tokens"), 80);
  EXPECT_GT(scores.at("nll"), 0);

  const Json report = answer_of(cli::add_inspect, {"inspect", checkpoint, "--json"});
  std::map<std::string, std::vector<std::int64_t>> shapes;
  std::int64_t numbers = 0;
  for (const Json& tensor : report.at("tensors")) {
    shapes[tensor.at("name")] = tensor.at("shape").get<std::vector<std::int64_t>>();
    numbers += tensor.at("numbers").get<std::int64_t>();
  }
  EXPECT_EQ(shapes.at("layers.0.attn.v_proj.weight"), (std::vector<std::int64_t>{16, 16}));
  EXPECT_FALSE(shapes.contains("layers.0.attn.q_proj.weight"));
  EXPECT_EQ(shapes.at("layers.1.gate_proj.weight"), (std::vector<std::int64_t>{48, 16}));
  EXPECT_FALSE(shapes.contains("layers.1.ffn.up_proj.weight"));
  EXPECT_EQ(report.at("parameters"), numbers);
  // Layer 0: values, and a gated unit of int(8/3 16) = 42; layer 1: gate, value and out.
  EXPECT_EQ(report.at("flops_per_token").at("layers"), 2 * (16 * 16 + 3 * 16 * 42 + 3 * 16 * 48));
  EXPECT_EQ(report.at("flops_per_token").at("attention"), 2 * 16 * 3);
  EXPECT_NEAR(report.at("memory_bytes").at("gradients").get<double>() / 4, numbers, 64);

  runs.write("bench.json", R"({"model": {"dim": 16, "heads": 2, "layers": 2, "vocab_size": 20}})");
  const Json rows =
      answer_of(cli::add_bench, {"bench", (runs.path() / "bench.json").string(), "--attentions",
                                 "moving_average,gated_mean", "--lengths", "8", "--batch-size", "2",
                                 "--repeat", "1", "--device", "cpu", "--json"});
  EXPECT_EQ(rows.at("rows").at(0).at("attention"), "moving_average");
  EXPECT_GT(rows.at("rows").at(1).at("tokens_per_s"), 0);
}

// Heads of the usual width would be 1 wide, of which LRPE can turn no pairs.
TEST(AddedAttentions, WithWidthsOfTheirOwnAreFreeOfTheUsualHeads) {
  const SmallRun runs;
  EXPECT_EQ(runs.train("run", with(with(kSets, "model.heads=16"), "train.steps=1")),
            ExitStatus::done);
  EXPECT_THROW(static_cast<void>(runs.request("usual", {"model.heads=16"})), UserError);
}

ModelConfig added(const char* early, const char* late) {
  ModelConfig config = small_config(ModelVariant::t2);
  config.variant = ModelVariant::custom;
  config.early = AttentionConfig(early);
  config.late = AttentionConfig(late);
  return config;
}

TEST(AddedAttentions, DecodeAsTheyReadWholeSequences) {
  const at::NoGradGuard no_grad;
  const auto model = make_model(added("moving_average", "gated_mean"));
  const at::Tensor tokens = random_tokens(2, 11);
  const at::Tensor whole = model->forward(tokens, {});
  ModelState state = model->make_state(2);
  at::Tensor steps = model->forward(tokens.narrow(1, 0, 6), {}, &state);
  for (std::int64_t t = 6; t < 11; ++t) {
    steps = at::cat({steps, model->forward(tokens.narrow(1, t, 1), {}, &state)}, 1);
  }
  EXPECT_LT(relative_error(steps, whole), 1e-5);
  EXPECT_GT(state.bytes(), 0);
}

TEST(AddedAttentions, ThatCannotBeBidirectionalAreRefusedInOneLine) {
  ModelConfig config = added("moving_average", "gated_mean");
  config.causal = false;
  try {
    static_cast<void>(make_model(config));
    FAIL() << "was taken";
  } catch (const UserError& error) {
    EXPECT_THAT(
        error.faults(),
        testing::ElementsAre(testing::AllOf(
            HasSubstr("model.late: the attention \"gated_mean\" cannot be bidirectional; set "
                      "model.causal to true, or choose one of cosformer, diag, "),
            HasSubstr(", moving_average, "), testing::Not(HasSubstr(", gated_mean")))));
  }
  EXPECT_NO_THROW(static_cast<void>(make_model([&] {
    ModelConfig early_only = config;
    early_only.early_layers = early_only.layers;  // no layer has the late one
    return early_only;
  }())));
}

}  // namespace
}  // namespace transnormer::test
