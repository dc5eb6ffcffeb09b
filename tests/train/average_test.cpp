// A running mean of the weights (optimizer.ema) through validation, saving, resume and retries.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "checkpoint/checkpoint.h"
#include "cli/answer.h"
#include "train/small_run.h"
#include "train/trainer.h"
#include "train/training_run.h"
#include "train/validation.h"
#include "util/error.h"
#include "util/file.h"

namespace transnormer {
namespace {

namespace fs = std::filesystem;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;
using Sets = std::vector<std::string>;

constexpr const char* kFile = "ema.safetensors";

class Average : public testing::Test {
 protected:
  [[nodiscard]] static Sets sets(const std::string& steps, const std::string& decay,
                                 Sets more = {}) {
    more.insert(more.end(), {"train.steps=" + steps, "optimizer.ema=" + decay,
                             "data.valid=" + valid_place(), "checkpoint.every=1"});
    return more;
  }
  static std::string& valid_place() {
    static std::string place;
    return place;
  }
  void SetUp() override { valid_place() = (runs_.path() / "valid.txt").string(); }

  [[nodiscard]] std::map<std::string, at::Tensor> weights_of(const std::string& run,
                                                             std::int64_t step,
                                                             Weights weights) const {
    std::map<std::string, at::Tensor> result;
    const auto model = Checkpoint::open(runs_.checkpoint(run, step)).load_model(at::kCPU, weights);
    for (const NamedTensor& named : named_tensors(*model)) {
      result[named.name] = named.tensor.detach().to(at::kDouble);
    }
    return result;
  }
  // That e += (1 - d) (w - e) over the weights of the steps after `first`, which are all saved, is
  // what the last of them holds.
  void expect_mean(const std::string& run, std::map<std::string, at::Tensor> mean,
                   std::int64_t first, std::int64_t last, double decay) const {
    for (std::int64_t step = first + 1; step <= last; ++step) {
      for (const auto& [name, weight] : weights_of(run, step, Weights::trained)) {
        mean[name] = mean[name] + (1 - decay) * (weight - mean[name]);
      }
    }
    const auto weights = weights_of(run, last, Weights::trained);
    for (const auto& [name, saved] : weights_of(run, last, Weights::ema)) {
      EXPECT_LT((saved - mean[name]).abs().max().item<double>(), 1e-6) << name;
      if (name == "embed.weight") {
        EXPECT_GT((saved - weights.at(name)).abs().max().item<double>(), 1e-3);
      }
    }
  }
  [[nodiscard]] std::map<std::string, at::Tensor> initial_weights() const {
    std::map<std::string, at::Tensor> result;
    const auto run = set_up(runs_.request("never-begun"));
    for (const NamedTensor& named : named_tensors(*run->model)) {
      result[named.name] = named.tensor.detach().to(at::kDouble);
    }
    return result;
  }
  [[nodiscard]] std::string file_of(const std::string& run, std::int64_t step) const {
    return runs_.file_of(run, step, kFile);
  }
  const SmallRun runs_;
};

TEST_F(Average, IsThatOfAPlainLoopOverTheWeightsOfAllUpdates) {
  ASSERT_EQ(runs_.train("run", sets("6", "0.8")), ExitStatus::done);
  expect_mean("run", initial_weights(), 0, 6, 0.8);
}

TEST_F(Average, ResumesToTheSameBits) {
  ASSERT_EQ(runs_.train("whole", sets("6", "0.8")), ExitStatus::done);
  ASSERT_EQ(runs_.train("parts", sets("3", "0.8")), ExitStatus::done);
  ASSERT_EQ(runs_.train("parts", sets("6", "0.8")), ExitStatus::done);
  expect_same_weights(runs_, "whole", "parts", 6);
  expect_same_state(runs_, "whole", "parts", 6);
  EXPECT_TRUE(file_of("whole", 6) == file_of("parts", 6));
  EXPECT_FALSE(file_of("whole", 6) == file_of("whole", 5));
}

TEST_F(Average, LeavesTheWeightsWhatTheyAreWithoutIt) {
  ASSERT_EQ(runs_.train("with", sets("6", "0.8")), ExitStatus::done);
  ASSERT_EQ(runs_.train("without", sets("6", "0")), ExitStatus::done);
  expect_same_weights(runs_, "with", "without", 6);
  expect_same_state(runs_, "with", "without", 6);
  EXPECT_FALSE(fs::exists(runs_.checkpoint("without", 6) / kFile));
  EXPECT_THAT(runs_.file_of("with", 6, "manifest.json"), HasSubstr(kFile));
}

TEST_F(Average, IsValidatedBesideTheWeightsWhichAloneChooseTheBest) {
  const auto run = set_up(runs_.request("run", sets("6", "0.8")));
  Recorded recorded;
  ASSERT_EQ(run_loop(*run, recorded), ExitStatus::done);
  ASSERT_EQ(recorded.valid.size(), 3U);
  for (const log::ValidEvent& event : recorded.valid) {
    std::map<std::string, double> figures{event.figures.begin(), event.figures.end()};
    ASSERT_THAT(figures, Contains(testing::Key("ema_loss")));
    EXPECT_NE(figures.at("ema_loss"), event.loss);
    EXPECT_NEAR(figures.at("ema_perplexity"), std::exp(figures.at("ema_loss")), 1e-9);
    EXPECT_NEAR(figures.at("perplexity"), std::exp(event.loss), 1e-9);
    if (event.best) {
      EXPECT_EQ(event.step == run->state.best_step, event.loss == run->state.best_valid_loss);
    }
    EXPECT_FALSE(run->state.best_valid_figures.contains("ema_loss"));
    // The same model, loaded as `eval --ema` does.
    const Checkpoint saved = Checkpoint::open(runs_.checkpoint("run", event.step));
    saved.load_average_into(named_tensors(*run->model));
    EXPECT_EQ(validate(*run, {})->loss, figures.at("ema_loss"));
    saved.load_into(*run->model);
    EXPECT_EQ(validate(*run, {})->loss, event.loss);
  }
}

TEST_F(Average, GivesWayToTheWeightsWhereItsValidationIsCutShort) {
  const auto run = set_up(runs_.request("run", sets("6", "0.8")));
  Recorded recorded;
  ASSERT_EQ(run_loop(*run, recorded), ExitStatus::done);
  const double before = validate(*run, {})->loss;
  EXPECT_FALSE(validate_average(*run, [] { return true; }).has_value());
  EXPECT_EQ(validate(*run, {})->loss, before);
  EXPECT_NE(validate_average(*run, {})->loss, before);
}

TEST_F(Average, SwitchedOnByAResumeStartsAtTheWeightsThere) {
  ASSERT_EQ(runs_.train("run", sets("3", "0")), ExitStatus::done);
  const auto run = set_up(runs_.request("run", sets("6", "0.5")));
  EXPECT_THAT(run->warnings, Contains(HasSubstr("starts at step 3 as the weights are there")));
  EXPECT_THAT(run->warnings, Contains(HasSubstr("optimizer.ema: 0.0 -> 0.5")));
  ASSERT_EQ(train(*run), ExitStatus::done);
  expect_mean("run", weights_of("run", 3, Weights::trained), 3, 6, 0.5);
}

TEST_F(Average, OfARunThatBeginsWithTheWeightsOfAnotherStartsAtThose) {
  ASSERT_EQ(runs_.train("first", sets("3", "0")), ExitStatus::done);
  const std::string from = "train.init_from=" + runs_.checkpoint("first", 3).string();
  ASSERT_EQ(runs_.train("run", sets("6", "0.8", {from})), ExitStatus::done);
  expect_mean("run", weights_of("first", 3, Weights::trained), 0, 6, 0.8);
}

TEST_F(Average, SwitchedOffByAResumeIsDropped) {
  ASSERT_EQ(runs_.train("run", sets("3", "0.5")), ExitStatus::done);
  const auto run = set_up(runs_.request("run", sets("4", "0")));
  EXPECT_THAT(run->warnings, Contains(HasSubstr("that the checkpoint of step 3 holds is dropped")));
  ASSERT_EQ(train(*run), ExitStatus::done);
  EXPECT_TRUE(fs::exists(runs_.checkpoint("run", 3) / kFile));
  EXPECT_FALSE(fs::exists(runs_.checkpoint("run", 4) / kFile));
}

TEST_F(Average, GoesOnWithAnotherDecay) {
  ASSERT_EQ(runs_.train("run", sets("3", "0.5")), ExitStatus::done);
  const auto mean = weights_of("run", 3, Weights::ema);
  const auto run = set_up(runs_.request("run", sets("6", "0.9")));
  EXPECT_THAT(run->warnings, Not(Contains(HasSubstr("starts at step"))));
  ASSERT_EQ(train(*run), ExitStatus::done);
  expect_mean("run", mean, 3, 6, 0.9);
}

// Of the samples at some positions, so that those passed over no longer hurt.
TEST_F(Average, GoesBackWithTheWeightsAfterADivergence) {
  for (const std::int64_t bad : {5, 0}) {  // back to a checkpoint, and to new weights
    const std::string name = "run-" + std::to_string(bad);
    const auto run = set_up(runs_.request(
        name, sets("8", "0.7", {"train.nonfinite=stop", "train.divergence_retries=1"})));
    const auto& state = run->state;
    const at::Tensor parameter = run->optimizer->parameters()[1].tensor;
    parameter.register_hook([&state, bad, gathered = parameter.grad()](const at::Tensor&) {
      if (state.step + state.samples_passed_over / 4 == bad) {
        gathered.fill_(std::numeric_limits<double>::quiet_NaN());
      }
    });
    ASSERT_EQ(train(*run), ExitStatus::done);
    EXPECT_EQ(run->state.divergence_retries, 1);
    expect_mean(name, initial_weights(), 0, 8, 0.7);
  }
}

TEST_F(Average, IsEvaluatedWhereItIsAskedForAndRefusedWhereThereIsNone) {
  ASSERT_EQ(runs_.train("with", sets("6", "0.8")), ExitStatus::done);
  ASSERT_EQ(runs_.train("without", sets("6", "0")), ExitStatus::done);
  const auto answer = [&](const std::string& run, const Sets& more) {
    Sets arguments{"eval", (runs_.path() / run).string(), "--text", valid_place()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return test::answer_of(cli::add_eval, arguments).at("token_perplexity").get<double>();
  };
  const double of_weights = answer("with", {"--json"});
  EXPECT_EQ(of_weights, answer("without", {"--json"}));
  EXPECT_NE(of_weights, answer("with", {"--ema", "--json"}));
  for (auto* add : {cli::add_eval, cli::add_generate}) {
    CLI::App app;
    cli::Run run;
    add(app, run);
    const std::string command = add == cli::add_eval ? "eval" : "generate";
    app.parse(Sets{"--ema", (runs_.path() / "without").string(), command});  // backwards
    try {
      (void)run();
      FAIL() << command << " found one";
    } catch (const UserError& error) {
      EXPECT_THAT(error.what(), HasSubstr("holds no running mean of the weights"));
      EXPECT_THAT(error.what(), Not(HasSubstr("\n")));
    }
  }
}

TEST_F(Average, ThatIsDamagedShowsAsSuch) {
  ASSERT_EQ(runs_.train("run", sets("1", "0.8")), ExitStatus::done);
  std::string bytes = file_of("run", 1);
  bytes[bytes.size() / 2] ^= 1;
  write_file(runs_.checkpoint("run", 1) / kFile, bytes);
  EXPECT_THROW((void)Checkpoint::open(runs_.checkpoint("run", 1)), DamagedCheckpointError);
}

}  // namespace
}  // namespace transnormer
