#include "optim/schedule.h"

#include <gtest/gtest.h>

namespace transnormer {
namespace {

constexpr double kPeak = 5e-4;

ScheduleConfig schedule(ScheduleKind name, std::int64_t warmup = 100) {
  ScheduleConfig config;
  config.name = name;
  config.warmup_steps = warmup;
  config.warmup_init_lr = 1e-7;
  return config;
}

TEST(Schedule, WarmUpRisesLinearlyFromItsInitialRateToThePeak) {
  for (const ScheduleKind name :
       {ScheduleKind::inverse_sqrt, ScheduleKind::cosine, ScheduleKind::linear,
        ScheduleKind::polynomial, ScheduleKind::constant, ScheduleKind::wsd}) {
    const ScheduleConfig config = schedule(name);
    EXPECT_DOUBLE_EQ(learning_rate(config, kPeak, 0, 1000), 1e-7);
    EXPECT_DOUBLE_EQ(learning_rate(config, kPeak, 50, 1000), 1e-7 + (5e-4 - 1e-7) / 2);
    EXPECT_DOUBLE_EQ(learning_rate(config, kPeak, 100, 1000), 5e-4);
  }
}

TEST(Schedule, InverseSquareRootHalvesWhenTheUpdatesQuadruple) {
  const ScheduleConfig config = schedule(ScheduleKind::inverse_sqrt);
  EXPECT_DOUBLE_EQ(learning_rate(config, kPeak, 400, 1000), 2.5e-4);
  EXPECT_DOUBLE_EQ(learning_rate(config, kPeak, 2500, 1000), 1e-4);
}

TEST(Schedule, InverseSquareRootWithoutWarmUpStartsAtThePeak) {
  const ScheduleConfig config = schedule(ScheduleKind::inverse_sqrt, 0);
  EXPECT_DOUBLE_EQ(learning_rate(config, kPeak, 0, 1000), 5e-4);
  EXPECT_DOUBLE_EQ(learning_rate(config, kPeak, 1, 1000), 5e-4);
  EXPECT_DOUBLE_EQ(learning_rate(config, kPeak, 4, 1000), 2.5e-4);
}

TEST(Schedule, CosineFallsOverHalfAPeriodToTheMinimum) {
  ScheduleConfig config = schedule(ScheduleKind::cosine);
  config.min_lr = 1e-4;
  EXPECT_NEAR(learning_rate(config, kPeak, 400, 1000), 1e-4 + 4e-4 * 0.75, 1e-12);  // cos(pi/3)
  EXPECT_NEAR(learning_rate(config, kPeak, 550, 1000), 3e-4, 1e-12);
  EXPECT_NEAR(learning_rate(config, kPeak, 1000, 1000), 1e-4, 1e-12);
  EXPECT_NEAR(learning_rate(config, kPeak, 5000, 1000), 1e-4, 1e-12);
}

TEST(Schedule, LinearFallsInAStraightLineToTheMinimum) {
  ScheduleConfig config = schedule(ScheduleKind::linear);
  EXPECT_NEAR(learning_rate(config, kPeak, 325, 1000), 3.75e-4, 1e-12);
  EXPECT_NEAR(learning_rate(config, kPeak, 1000, 1000), 0, 1e-12);
  config.min_lr = 1e-4;
  EXPECT_NEAR(learning_rate(config, kPeak, 550, 1000), 3e-4, 1e-12);
}

TEST(Schedule, PolynomialFallsByItsPower) {
  ScheduleConfig config = schedule(ScheduleKind::polynomial);
  config.power = 2;
  EXPECT_NEAR(learning_rate(config, kPeak, 550, 1000), 5e-4 / 4, 1e-12);
  EXPECT_NEAR(learning_rate(config, kPeak, 775, 1000), 5e-4 / 16, 1e-12);
}

TEST(Schedule, ConstantStaysAtThePeak) {
  EXPECT_DOUBLE_EQ(learning_rate(schedule(ScheduleKind::constant), kPeak, 999, 1000), 5e-4);
}

TEST(Schedule, WarmUpStableDecayFallsInAStraightLineAtTheEndOnly) {
  ScheduleConfig config = schedule(ScheduleKind::wsd);
  config.min_lr = 1e-4;
  config.decay_steps = 200;
  EXPECT_DOUBLE_EQ(learning_rate(config, kPeak, 101, 1000), 5e-4);
  EXPECT_DOUBLE_EQ(learning_rate(config, kPeak, 800, 1000), 5e-4);
  EXPECT_NEAR(learning_rate(config, kPeak, 850, 1000), 4e-4, 1e-12);
  EXPECT_NEAR(learning_rate(config, kPeak, 1000, 1000), 1e-4, 1e-12);
  config.decay_steps = 0;  // a tenth
  EXPECT_DOUBLE_EQ(learning_rate(config, kPeak, 900, 1000), 5e-4);
  EXPECT_NEAR(learning_rate(config, kPeak, 950, 1000), 3e-4, 1e-12);
}

TEST(Schedule, NeverFallsBelowTheMinimumAfterTheWarmUp) {
  ScheduleConfig config = schedule(ScheduleKind::inverse_sqrt);
  config.min_lr = 2e-4;
  EXPECT_DOUBLE_EQ(learning_rate(config, kPeak, 1000000, 1000), 2e-4);
}

TEST(Schedule, AWarmUpBeyondTheEndLeavesTheDecayAtItsEnd) {
  EXPECT_DOUBLE_EQ(learning_rate(schedule(ScheduleKind::linear), kPeak, 50, 80),
                   1e-7 + (5e-4 - 1e-7) / 2);
  EXPECT_DOUBLE_EQ(learning_rate(schedule(ScheduleKind::linear), kPeak, 100, 80), 0);
}

}  // namespace
}  // namespace transnormer
