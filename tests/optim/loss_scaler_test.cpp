#include "optim/loss_scaler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace transnormer {
namespace {

TEST(LossScaler, StartsAt65536AndDividesTheGradientsByIt) {
  const LossScaler scaler(true);
  EXPECT_EQ(scaler.scale(), 65536);
  const std::vector<at::Tensor> gradients{at::full({3}, 65536.0), at::full({2}, -131072.0)};
  scaler.unscale(gradients);
  EXPECT_EQ(gradients[0][0].item<double>(), 1);
  EXPECT_EQ(gradients[1][1].item<double>(), -2);
}

TEST(LossScaler, UnscalingKeepsElementsThatAreNotFiniteVisible) {
  const LossScaler scaler(true);
  const std::vector<at::Tensor> gradients{at::full({1}, std::numeric_limits<double>::infinity())};
  scaler.unscale(gradients);
  EXPECT_FALSE(std::isfinite(gradients[0].item<double>()));
}

TEST(LossScaler, HalvesOnOverflowAndDoublesAfterTwoThousandGoodUpdates) {
  LossScaler scaler(true);
  EXPECT_TRUE(scaler.update(true));
  EXPECT_EQ(scaler.scale(), 32768);
  for (int i = 0; i < 1999; ++i) {
    scaler.update(false);
  }
  EXPECT_EQ(scaler.scale(), 32768);
  scaler.update(false);
  EXPECT_EQ(scaler.scale(), 65536);
}

TEST(LossScaler, AnOverflowStartsTheCountOfGoodUpdatesAnew) {
  LossScaler scaler(true);
  for (int i = 0; i < 1999; ++i) {
    scaler.update(false);
  }
  scaler.update(true);
  scaler.update(false);
  EXPECT_EQ(scaler.scale(), 32768);
  EXPECT_EQ(scaler.growth_count(), 1);
}

TEST(LossScaler, AtTheLowestScaleAnOverflowIsNotTheScalesFault) {
  LossScaler scaler(true);
  scaler.restore(1, 0);
  EXPECT_FALSE(scaler.update(true));
  EXPECT_EQ(scaler.scale(), 1);
}

TEST(LossScaler, SwitchedOffItChangesNothing) {
  LossScaler scaler(false);
  scaler.restore(1024, 5);
  EXPECT_FALSE(scaler.update(true));
  EXPECT_EQ(scaler.scale(), 1);
  const std::vector<at::Tensor> gradients{at::full({1}, 3.0)};
  scaler.unscale(gradients);
  EXPECT_EQ(gradients[0].item<double>(), 3);
}

}  // namespace
}  // namespace transnormer
