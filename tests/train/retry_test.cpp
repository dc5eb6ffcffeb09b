// Going back after a divergence, and on with other samples.
#include "train/retry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "train/small_run.h"
#include "train/trainer.h"
#include "util/error.h"
#include "util/file.h"

namespace transnormer {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr std::int64_t kBatch = 4;  // samples an update, of the small run

// Samples at these positions of their order give gradients that are not finite: a function of the
// data alone, as in a training that really diverges. `on_update` is told before each update.
void poison_samples(TrainingRun& run, std::int64_t first, std::int64_t last,
                    std::function<void(const TrainingState&)> on_update = {}) {
  const auto& state = run.state;
  const at::Tensor parameter = run.optimizer->parameters()[1].tensor;
  parameter.register_hook([&state, first, last, on_update = std::move(on_update),
                           gathered = parameter.grad()](const at::Tensor&) {
    if (on_update) {
      on_update(state);
    }
    const std::int64_t position = state.step * kBatch + state.samples_passed_over;
    if (position + kBatch > first && position < last) {
      gathered.fill_(std::numeric_limits<double>::quiet_NaN());
    }
  });
}

class Retry : public testing::Test {
 protected:
  [[nodiscard]] std::unique_ptr<TrainingRun> run_with(
      const std::string& name, const std::string& retries,
      const std::vector<std::string>& more = {}) const {
    std::vector<std::string> sets{"train.nonfinite=stop", "train.steps=10",
                                  "train.divergence_retries=" + retries};
    sets.insert(sets.end(), more.begin(), more.end());
    return set_up(runs_.request(name, sets));
  }

  [[nodiscard]] std::vector<nlohmann::json> lines(const std::string& name) const {
    std::vector<nlohmann::json> lines;
    std::istringstream text(read_file(runs_.path() / name / "metrics.jsonl"));
    for (std::string line; std::getline(text, line);) {
      lines.push_back(nlohmann::json::parse(line));
    }
    return lines;
  }
  [[nodiscard]] std::vector<std::string> retries_told(const std::string& name) const {
    std::vector<std::string> messages;
    for (const nlohmann::json& line : lines(name)) {
      if (line.value("event", "") == "divergence_retried") {
        messages.push_back(line.at("message"));
      }
    }
    return messages;
  }

  SmallRun runs_;
};

TEST_F(Retry, GoesBackToTheLastSoundCheckpointAndPassesOverTheSamplesSince) {
  const auto run = run_with("run", "2");
  poison_samples(*run, 5 * kBatch, 5 * kBatch + 1);
  EXPECT_EQ(train(*run), ExitStatus::done);
  EXPECT_EQ(run->state.step, 10);
  EXPECT_EQ(run->state.divergence_retries, 1);
  EXPECT_EQ(run->state.samples_passed_over, 2 * kBatch);  // of updates 4 and 5
  EXPECT_THAT(retries_told("run"),
              testing::ElementsAre(testing::AllOf(
                  HasSubstr("training diverged at update 6"), HasSubstr("gone back to step 4, "),
                  HasSubstr("8 samples are passed over, 1 retry is left"))));
}

TEST_F(Retry, MetricsHoldEachStepOnce) {
  const auto run = run_with("run", "1");
  poison_samples(*run, 5 * kBatch, 5 * kBatch + 1);
  EXPECT_EQ(train(*run), ExitStatus::done);
  std::vector<std::int64_t> steps;
  for (const nlohmann::json& line : lines("run")) {
    if (line.at("kind") == "train") {
      steps.push_back(line.at("step"));
    }
  }
  EXPECT_THAT(steps, testing::ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 9, 10));
}

TEST_F(Retry, WithoutACheckpointItBeginsAnewBehindTheSamplesSeen) {
  const auto run = run_with("run", "1", {"checkpoint.every=0"});
  poison_samples(*run, 3 * kBatch, 3 * kBatch + 1);
  EXPECT_EQ(train(*run), ExitStatus::done);
  EXPECT_EQ(run->state.samples_passed_over, 4 * kBatch);
  const auto same = run_with("same", "1", {"checkpoint.every=0"});
  same->state.samples_passed_over = 4 * kBatch;
  same->state.divergence_retries = 1;
  EXPECT_EQ(train(*same), ExitStatus::done);
  expect_same_weights(runs_, "run", "same", 10);
  expect_same_state(runs_, "run", "same", 10);
}

// The update after a retry diverges at once, so that the state it went back to may be the reason.
TEST_F(Retry, OneThatDivergesAtOnceIsFollowedByOneThatGoesBackFurtherAndPassesOverAllThatWasSeen) {
  const auto run = run_with("run", "2");
  poison_samples(*run, 5 * kBatch, 7 * kBatch);
  EXPECT_EQ(train(*run), ExitStatus::done);
  EXPECT_EQ(run->state.divergence_retries, 2);
  EXPECT_EQ(run->state.samples_passed_over, 5 * kBatch);
  EXPECT_THAT(retries_told("run"),
              testing::ElementsAre(HasSubstr("gone back to step 4, 8 samples"),
                                   HasSubstr("gone back to step 2, 12 samples")));
}

TEST_F(Retry, WhenNoRetryIsLeftItEndsAsWithoutAny) {
  const auto run = run_with("run", "2");
  poison_samples(*run, 5 * kBatch, 1000 * kBatch);
  EXPECT_THROW((void)train(*run), DivergedError);
  EXPECT_EQ(run->state.divergence_retries, 2);
  EXPECT_EQ(retries_told("run").size(), 2U);
  EXPECT_TRUE(runs_.has_checkpoint("run", 2));
}

TEST_F(Retry, IsNotMadeUnlessAskedFor) {
  const auto run = run_with("run", "0");
  poison_samples(*run, 5 * kBatch, 5 * kBatch + 1);
  EXPECT_THROW((void)train(*run), DivergedError);
  EXPECT_EQ(run->state.step, 5);
  EXPECT_EQ(run->state.samples_passed_over, 0);
}

TEST_F(Retry, AResumedRunTakesTheSameSamples) {
  for (const char* const steps : {"6", "10"}) {
    const auto run = run_with("parts", "1", {"train.steps=" + std::string(steps)});
    poison_samples(*run, 5 * kBatch, 5 * kBatch + 1);
    EXPECT_EQ(train(*run), ExitStatus::done);
  }
  const auto whole = run_with("whole", "1");
  poison_samples(*whole, 5 * kBatch, 5 * kBatch + 1);
  EXPECT_EQ(train(*whole), ExitStatus::done);
  expect_same_weights(runs_, "whole", "parts", 10);
  expect_same_state(runs_, "whole", "parts", 10);
}

// A copy of the run directory, taken while the run goes on, is what a kill leaves.
TEST_F(Retry, ARunThatIsKilledBeforeItSavesAgainGoesTheSameWay) {
  const auto whole = run_with("whole", "1");
  poison_samples(*whole, 5 * kBatch, 5 * kBatch + 1, [this](const TrainingState& state) {
    if (state.step == 5 && state.samples_passed_over > 0 && !fs::exists(runs_.path() / "killed")) {
      fs::copy(runs_.path() / "whole", runs_.path() / "killed",
               fs::copy_options::recursive | fs::copy_options::copy_symlinks);
    }
  });
  EXPECT_EQ(train(*whole), ExitStatus::done);
  const auto killed = run_with("killed", "1");
  EXPECT_EQ(killed->state.step, 4);
  EXPECT_EQ(killed->state.divergence_retries, 0);
  poison_samples(*killed, 5 * kBatch, 5 * kBatch + 1);
  EXPECT_EQ(train(*killed), ExitStatus::done);
  expect_same_weights(runs_, "whole", "killed", 10);
  expect_same_state(runs_, "whole", "killed", 10);
}

TEST_F(Retry, AForkWithoutACheckpointOfItsOwnGoesBackToTheOneItGoesOnFrom) {
  ASSERT_EQ(runs_.train("origin", {"train.nonfinite=stop", "train.steps=4"}), ExitStatus::done);
  TrainRequest request =
      runs_.request("fork", {"train.nonfinite=stop", "train.steps=10", "checkpoint.every=0",
                             "train.divergence_retries=1"});
  request.resume = ResumeMode::checkpoint;
  request.resume_from = runs_.checkpoint("origin", 4);
  const auto run = set_up(request);
  poison_samples(*run, 6 * kBatch, 6 * kBatch + 1);
  EXPECT_EQ(train(*run), ExitStatus::done);
  EXPECT_EQ(run->state.samples_passed_over, 3 * kBatch);
  EXPECT_THAT(retries_told("fork").at(0), HasSubstr("gone back to step 4, "));
}

// Step 50 is sound, the later ones that were saved are not.
TEST_F(Retry, ALossFarAboveGuessingGoesBackToBeforeItRoseAndTheCheckpointsSinceGo) {
  ASSERT_EQ(runs_.train("run", {"train.steps=50", "checkpoint.every=50"}), ExitStatus::done);
  const auto run =
      set_up(runs_.request("run", {"train.steps=400", "optimizer.lr=100", "schedule.name=constant",
                                   "checkpoint.every=5", "train.divergence_retries=1"}));
  EXPECT_THROW((void)train(*run), DivergedError);
  ASSERT_EQ(retries_told("run").size(), 1U);
  EXPECT_THAT(retries_told("run").front(),
              testing::AllOf(HasSubstr("the mean loss of 50 updates is"),
                             HasSubstr("gone back to step 50, ")));
  EXPECT_EQ(run->state.samples_passed_over % kBatch, 0);
  EXPECT_GT(run->state.samples_passed_over, 0);
}

}  // namespace
}  // namespace transnormer
