#include "ops/trust/judge.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ops/trust/kernel_names.h"
#include "ops/trust/lying_kernels.h"

namespace transnormer::ops {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::Pair;

TEST(Judge, FindsNoFaultInHonestKernels) {
  const auto found = judge(trial_of("honest"));
  ASSERT_TRUE(found.has_value());
  EXPECT_TRUE(found->faults.empty());
  EXPECT_TRUE(found->is_proven);
}

TEST(Judge, NamesTheKernelThatDisagreesAndHow) {
  const auto wrong = judge(trial_of("wrong"));
  EXPECT_THAT(wrong->faults,
              ElementsAre(Pair("srms_norm", HasSubstr("its results in Float differ by"))));
  EXPECT_TRUE(wrong->is_proven);
  const auto throws = judge(trial_of("throws"));
  EXPECT_THAT(throws->faults,
              ElementsAre(Pair("gated", AllOf(HasSubstr("it fails: an illegal memory access"),
                                              Not(HasSubstr("\n"))))));
  EXPECT_FALSE(throws->is_proven);
}

TEST(Judge, OutlivesAKernelThatEndsItsProcessAndTriesTheOthers) {
  const auto crashes = judge(trial_of("crashes"));
  EXPECT_THAT(crashes->faults, ElementsAre(Pair("dropout", HasSubstr("was ended by signal 6"))));
  EXPECT_TRUE(crashes->is_proven);
  const auto ends = judge(trial_of("ends"));
  EXPECT_THAT(ends->faults, ElementsAre(Pair("lrpe", HasSubstr("ended early"))));
  EXPECT_FALSE(ends->is_proven);
}

TEST(Judge, HoldsForUnprovenWhatTheSystemMayHaveDone) {
  const auto killed = judge(trial_of("killed"));
  EXPECT_THAT(killed->faults, ElementsAre(Pair("dropout", HasSubstr("was ended by signal 9"))));
  EXPECT_FALSE(killed->is_proven);
  const auto full = judge(trial_of("out of memory"));
  EXPECT_THAT(full->faults, ElementsAre(Pair("gated", HasSubstr("CUDA out of memory"))));
  EXPECT_FALSE(full->is_proven);
}

TEST(Judge, WaitsNoLongerThanItsLimitForAKernelThatHangs) {
  TrialLimits limits;
  limits.trial = std::chrono::milliseconds(1500);
  const auto found = judge(trial_of("hangs"), limits);
  EXPECT_EQ(found->faults.at("feature"), "it gives no results");
  EXPECT_FALSE(found->faults.contains("gated"));
  EXPECT_FALSE(found->is_proven);
}

TEST(Judge, TrustsNothingBehindTooManyCrashes) {
  TrialLimits limits;
  limits.crashes = 1;
  const auto found = judge(trial_of("crashes"), limits);
  EXPECT_FALSE(found->faults.contains("gated"));  // tried before
  EXPECT_THAT(found->faults.at("cross_entropy"), HasSubstr("untried"));
  EXPECT_FALSE(found->is_proven);
}

TEST(Judge, SaysNothingWhereTheProcessDoesNotGetReady) {
  EXPECT_FALSE(judge(trial_of("never ready")).has_value());
}

}  // namespace
}  // namespace transnormer::ops
