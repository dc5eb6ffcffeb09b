#include "train/ending.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "util/error.h"

namespace transnormer {
namespace {

using testing::ElementsAre;

TrainConfig limits(std::int64_t steps, std::int64_t max_epochs, std::int64_t batch = 4) {
  TrainConfig config;
  config.steps = steps;
  config.max_epochs = max_epochs;
  config.global_batch_size = batch;
  return config;
}

TEST(Ending, IsTheEarlierOfStepsAndEpochs) {
  EXPECT_EQ(total_steps(limits(100, 0), 10), 100);
  EXPECT_EQ(total_steps(limits(0, 4), 10), 10);
  EXPECT_EQ(total_steps(limits(100, 4), 10), 10);
  EXPECT_EQ(total_steps(limits(5, 4), 10), 5);
}

TEST(Ending, TheUpdateThatReachesTheLastEpochsEndIsMadeWhole) {
  EXPECT_EQ(total_steps(limits(0, 1), 10), 3);
}

TEST(Ending, EpochsBeyondCountingAreNoLimit) {
  EXPECT_EQ(total_steps(limits(7, 1'000'000'000'000'000), 1'000'000'000), 7);
}

TEST(Ending, NoLimitAtAllIsRefused) {
  EXPECT_THROW((void)total_steps(limits(0, 0), 10), UserError);
}

TEST(Ending, TrainingGoesOnUntilTheLastStep) {
  Config config;
  config.train = limits(10, 0);
  TrainingState state;
  state.step = 9;
  EXPECT_FALSE(reason_to_end(config, state, 10));
  state.step = 10;
  EXPECT_THAT(reason_to_end(config, state, 10).value(), testing::HasSubstr("train.steps"));
}

TEST(Ending, NamesTheEpochsThatEndedIt) {
  Config config;
  config.train = limits(100, 4);
  TrainingState state;
  state.step = 10;
  EXPECT_THAT(reason_to_end(config, state, 10).value(), testing::HasSubstr("train.max_epochs, 4"));
}

TEST(Ending, NamesTheKeysThatWouldHaveToChangeForItToGoOn) {
  Config config;
  config.train = limits(10, 4);  // of 10 samples: step 10, too
  config.validation.patience = 2;
  TrainingState state;
  state.validations_without_gain = 2;
  EXPECT_THAT(keys_that_end(config, state, 10), ElementsAre("validation.patience"));
  state.step = 10;
  EXPECT_THAT(keys_that_end(config, state, 10),
              ElementsAre("validation.patience", "train.steps", "train.max_epochs"));
  state.validations_without_gain = 0;
  config.train = limits(100, 4);
  EXPECT_THAT(keys_that_end(config, state, 10), ElementsAre("train.max_epochs"));
  config.train = limits(10, 0);
  EXPECT_THAT(keys_that_end(config, state, 10), ElementsAre("train.steps"));
}

TEST(Ending, PatienceEndsTrainingAndNamesTheBestStep) {
  Config config;
  config.validation.patience = 2;
  TrainingState state;
  state.best_step = 3;
  state.validations_without_gain = 1;
  EXPECT_FALSE(reason_to_end(config, state, 10));
  state.validations_without_gain = 2;
  EXPECT_THAT(
      reason_to_end(config, state, 10).value(),
      testing::AllOf(testing::HasSubstr("validation.patience"), testing::HasSubstr("step 3")));
}

}  // namespace
}  // namespace transnormer
