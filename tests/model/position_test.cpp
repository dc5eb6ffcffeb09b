#include "model/position.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

namespace transnormer {
namespace {

// The definition, written out: sines of all frequencies, then cosines; the first position is 2.
double expected(std::int64_t position, std::int64_t column, std::int64_t dim) {
  const std::int64_t half = dim / 2;
  const double frequency =
      std::pow(10000.0, -static_cast<double>(column % half) / static_cast<double>(half - 1));
  const double angle = static_cast<double>(position + 2) * frequency;
  return column < half ? std::sin(angle) : std::cos(angle);
}

TEST(SinusoidalPositions, AreSinesThenCosinesFromNumberTwo) {
  SinusoidalPositions positions(10);
  const at::Tensor rows = positions.rows(0, 7, at::kCPU);
  ASSERT_EQ(rows.sizes(), (at::IntArrayRef{7, 10}));
  for (std::int64_t t = 0; t < 7; ++t) {
    for (std::int64_t i = 0; i < 10; ++i) {
      EXPECT_NEAR(rows[t][i].item<double>(), expected(t, i, 10), 1e-7);
    }
  }
}

TEST(SinusoidalPositions, KeepTheirPrecisionFarOut) {
  SinusoidalPositions positions(8);
  const std::int64_t far = 30'000'001;
  const at::Tensor row = positions.rows(far, 1, at::kCPU);
  for (std::int64_t i = 0; i < 8; ++i) {
    EXPECT_NEAR(row[0][i].item<double>(), expected(far, i, 8), 1e-6);
  }
}

TEST(SinusoidalPositions, DoNotDependOnWhatWasAskedBefore) {
  SinusoidalPositions used(12);
  const auto ask = [&](std::int64_t first, std::int64_t count) {
    SinusoidalPositions fresh(12);
    EXPECT_TRUE(at::equal(used.rows(first, count, at::kCPU), fresh.rows(first, count, at::kCPU)))
        << first << " " << count;
  };
  ask(0, 20);
  ask(5, 10);
  ask(5, 20);
  ask(0, 1);
  ask(1000, 3);
}

TEST(SinusoidalPositions, AreMadeForManyTokensToCome) {
  SinusoidalPositions positions(6);
  const at::Tensor first = positions.rows(1000, 1, at::kCPU);
  for (std::int64_t t = 1001; t < 1512; ++t) {
    ASSERT_TRUE(positions.rows(t, 1, at::kCPU).is_alias_of(first)) << t;
  }
  EXPECT_FALSE(positions.rows(1512, 1, at::kCPU).is_alias_of(first));
  EXPECT_EQ(positions.rows(0, 600, at::kCPU).size(0), 600);
}

TEST(SinusoidalPositions, LeaveAnOddLastColumnZero) {
  SinusoidalPositions positions(5);
  EXPECT_EQ(positions.rows(0, 3, at::kCPU).select(1, 4).abs().max().item<double>(), 0);
}

}  // namespace
}  // namespace transnormer
