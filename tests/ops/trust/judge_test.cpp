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
  const auto faults = judge(trial_of("honest"));
  ASSERT_TRUE(faults.has_value());
  EXPECT_TRUE(faults->empty());
}

TEST(Judge, NamesTheKernelThatDisagreesAndHow) {
  EXPECT_THAT(*judge(trial_of("wrong")),
              ElementsAre(Pair("srms_norm", HasSubstr("its results in Float differ by"))));
  EXPECT_THAT(*judge(trial_of("throws")),
              ElementsAre(Pair("gated", AllOf(HasSubstr("it fails: an illegal memory access"),
                                              Not(HasSubstr("\n"))))));
}

TEST(Judge, OutlivesAKernelThatEndsItsProcessAndTriesTheOthers) {
  EXPECT_THAT(*judge(trial_of("crashes")),
              ElementsAre(Pair("dropout", HasSubstr("was ended by signal 9"))));
  EXPECT_THAT(*judge(trial_of("ends")), ElementsAre(Pair("lrpe", HasSubstr("ended early"))));
}

TEST(Judge, WaitsNoLongerThanItsLimitForAKernelThatHangs) {
  TrialLimits limits;
  limits.trial = std::chrono::milliseconds(1500);
  const auto faults = judge(trial_of("hangs"), limits);
  EXPECT_EQ(faults->at("feature"), "it gives no results");
  EXPECT_FALSE(faults->contains("gated"));
}

TEST(Judge, TrustsNothingBehindTooManyCrashes) {
  TrialLimits limits;
  limits.crashes = 1;
  const auto faults = judge(trial_of("crashes"), limits);
  EXPECT_FALSE(faults->contains("gated"));  // tried before
  EXPECT_THAT(faults->at("cross_entropy"), HasSubstr("untried"));
}

TEST(Judge, SaysNothingWhereTheProcessDoesNotGetReady) {
  EXPECT_EQ(judge(trial_of("never ready")), std::nullopt);
}

}  // namespace
}  // namespace transnormer::ops
