#include "train/nonfinite.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace transnormer {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Nonfinite : testing::Test {
  TrainConfig config;
  LossScaler scaler{false};
  LossScaler half{true};
  TrainingState state;
};

TEST_F(Nonfinite, AFiniteUpdateIsApplied) {
  EXPECT_EQ(judge_update(3, 1, config, scaler, state).fate, UpdateFate::applied);
  EXPECT_EQ(state.skipped_updates, 0);
}

TEST_F(Nonfinite, ALossOrGradientThatIsNotFiniteIsSkippedAndCounted) {
  EXPECT_EQ(judge_update(kNaN, 1, config, scaler, state).fate, UpdateFate::skipped);
  const Verdict verdict = judge_update(3, kInfinity, config, scaler, state);
  EXPECT_EQ(verdict.fate, UpdateFate::skipped);
  EXPECT_THAT(verdict.reason, testing::HasSubstr("2 of 10 in a row"));
  EXPECT_EQ(state.skipped_updates, 2);
}

TEST_F(Nonfinite, AnAppliedUpdateEndsARowOfSkips) {
  (void)judge_update(kNaN, 1, config, scaler, state);
  (void)judge_update(3, 1, config, scaler, state);
  EXPECT_EQ(state.consecutive_skips, 0);
  EXPECT_EQ(state.skipped_updates, 1);
}

TEST_F(Nonfinite, TheLimitOfSkipsInARowDiverges) {
  config.nonfinite_limit = 3;
  (void)judge_update(kNaN, 1, config, scaler, state);
  (void)judge_update(kNaN, 1, config, scaler, state);
  EXPECT_EQ(judge_update(kNaN, 1, config, scaler, state).fate, UpdateFate::diverged);
}

TEST_F(Nonfinite, ThePolicyStopDivergesAtOnce) {
  config.nonfinite = NonfinitePolicy::stop;
  EXPECT_EQ(judge_update(3, kNaN, config, scaler, state).fate, UpdateFate::diverged);
}

TEST_F(Nonfinite, AnOverflowThatLowersTheLossScaleDoesNotCountTowardTheLimit) {
  config.nonfinite = NonfinitePolicy::stop;
  for (int halving = 0; halving < 16; ++halving) {
    EXPECT_EQ(judge_update(3, kInfinity, config, half, state).fate, UpdateFate::rescaled);
  }
  EXPECT_EQ(half.scale(), 1);
  EXPECT_EQ(state.consecutive_skips, 0);
  EXPECT_EQ(state.skipped_updates, 16);
  EXPECT_EQ(judge_update(3, kInfinity, config, half, state).fate, UpdateFate::diverged);
}

TEST_F(Nonfinite, ALossThatIsNotFiniteIsNeverTheLossScalesFault) {
  EXPECT_EQ(judge_update(kNaN, kNaN, config, half, state).fate, UpdateFate::skipped);
  EXPECT_EQ(state.consecutive_skips, 1);
}

}  // namespace
}  // namespace transnormer
