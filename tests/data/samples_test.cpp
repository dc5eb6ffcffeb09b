#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "data/batches.h"
#include "util/error.h"

namespace transnormer {
namespace {

using testing::ElementsAre;

TokenStream counting_stream(TokenId count) {
  std::vector<TokenId> tokens(static_cast<std::size_t>(count));
  std::iota(tokens.begin(), tokens.end(), 100);
  return TokenStream(std::move(tokens));
}

TEST(Samples, AreTheStreamCutIntoTargetsWithInputsShiftedByOne) {
  const Samples samples(counting_stream(8), 4, 2);
  ASSERT_EQ(samples.count(), 2);
  Batch batch;
  samples.append(0, batch);
  samples.append(1, batch);
  EXPECT_THAT(batch.inputs, ElementsAre(2, 100, 101, 102, 103, 104, 105, 106));
  EXPECT_THAT(batch.targets, ElementsAre(100, 101, 102, 103, 104, 105, 106, 107));
  EXPECT_EQ(batch.samples, 2);
  EXPECT_EQ(batch.length, 4);
  EXPECT_EQ(batch.target_tokens, 8);
}

TEST(Samples, KeepTheLastShortOneWithItsMissingTargetsMasked) {
  const Samples samples(counting_stream(6), 4, 2);
  ASSERT_EQ(samples.count(), 2);
  Batch batch;
  samples.append(1, batch);
  EXPECT_THAT(batch.inputs, ElementsAre(103, 104, 2, 2));
  EXPECT_THAT(batch.targets, ElementsAre(104, 105, kIgnoredTarget, kIgnoredTarget));
  EXPECT_EQ(batch.target_tokens, 2);
}

TEST(Samples, WorkForSamplesOfOneToken) {
  Batch one;
  Samples(counting_stream(3), 1, 2).append(2, one);
  EXPECT_THAT(one.inputs, ElementsAre(101));
  EXPECT_THAT(one.targets, ElementsAre(102));
}

TEST(Samples, AreNotPaddedWhereTheStreamIsShorterThanOne) {
  const Samples samples(counting_stream(3), 1000000000, 2);
  EXPECT_EQ(samples.count(), 1);
  EXPECT_EQ(samples.length(), 3);
  Batch batch;
  samples.append(0, batch);
  samples.append(0, batch);
  EXPECT_THAT(batch.inputs, ElementsAre(2, 100, 101, 2, 100, 101));
  EXPECT_THAT(batch.targets, ElementsAre(100, 101, 102, 100, 101, 102));
  EXPECT_EQ(batch.length, 3);
  EXPECT_EQ(batch.target_tokens, 6);
  EXPECT_EQ(Samples(TokenStream(), 5, 2).count(), 0);
}

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
