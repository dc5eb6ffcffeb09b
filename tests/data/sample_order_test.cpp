#include "data/sample_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "util/error.h"

namespace transnormer {
namespace {

using testing::ElementsAre;

std::vector<std::int64_t> epoch_of(SampleOrder& order, std::int64_t samples, std::int64_t epoch) {
  std::vector<std::int64_t> places;
  for (std::int64_t i = 0; i < samples; ++i) {
    places.push_back(order.sample_at(epoch * samples + i));
  }
  return places;
}

TEST(SampleOrder, IsAPermutationOfEachEpoch) {
  SampleOrder order(97, 5);
  for (std::int64_t epoch = 0; epoch < 4; ++epoch) {
    const auto places = epoch_of(order, 97, epoch);
    const std::set<std::int64_t> different(places.begin(), places.end());
    EXPECT_EQ(different.size(), 97U);
    EXPECT_EQ(*different.begin(), 0);
    EXPECT_EQ(*different.rbegin(), 96);
  }
}

TEST(SampleOrder, DependsOnSeedAndEpoch) {
  SampleOrder order(97, 5);
  SampleOrder other(97, 6);
  EXPECT_NE(epoch_of(order, 97, 0), epoch_of(order, 97, 1));
  EXPECT_NE(epoch_of(order, 97, 0), epoch_of(other, 97, 0));
}

TEST(SampleOrder, IsTheSameFromWhereverItIsEntered) {
  SampleOrder straight(31, 5);
  std::vector<std::int64_t> expected;
  for (std::int64_t position = 0; position < 100; ++position) {
    expected.push_back(straight.sample_at(position));
  }
  SampleOrder backwards(31, 5);
  for (std::int64_t position = 99; position >= 0; --position) {
    EXPECT_EQ(backwards.sample_at(position), expected[static_cast<std::size_t>(position)]);
  }
}

// Where sample 0 of four lands, over many seeds: each place a quarter of the time.
TEST(SampleOrder, PutsEachSampleInEachPlaceEquallyOften) {
  std::array<int, 4> places{};
  for (std::uint64_t seed = 0; seed < 4000; ++seed) {
    SampleOrder order(4, seed);
    for (std::int64_t position = 0; position < 4; ++position) {
      if (order.sample_at(position) == 0) {
        ++places[static_cast<std::size_t>(position)];
      }
    }
  }
  for (const int count : places) {
    EXPECT_NEAR(count, 1000, 110);  // four standard deviations
  }
}

// A resumed run of another build must meet the same order, so it is part of the format.
TEST(SampleOrder, IsFixedForever) {
  SampleOrder order(8, 1);
  EXPECT_THAT(epoch_of(order, 8, 0), ElementsAre(0, 5, 3, 7, 4, 2, 6, 1));
  EXPECT_THAT(epoch_of(order, 8, 1), ElementsAre(1, 4, 3, 5, 7, 0, 2, 6));
}

TEST(SampleOrder, RefusesAnEmptyStream) {
  EXPECT_THROW(SampleOrder(0, 1), UserError);
}

}  // namespace
}  // namespace transnormer
