#include "util/philox.h"

#include <gtest/gtest.h>

#include <set>
#include <utility>
#include <vector>

namespace transnormer {
namespace {

// The known answers that the generator's authors publish with Random123.
TEST(Philox, GivesThePublishedAnswers) {
  EXPECT_EQ(philox4x32({0, 0}, {0, 0, 0, 0}),
            (PhiloxWords{0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8}));
  constexpr std::uint32_t ones = 0xFFFFFFFF;
  EXPECT_EQ(philox4x32({ones, ones}, {ones, ones, ones, ones}),
            (PhiloxWords{0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD}));
  EXPECT_EQ(philox4x32({0xA4093822, 0x299F31D0}, {0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344}),
            (PhiloxWords{0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1}));
}

TEST(PhiloxKeys, OfSmallNumbersDoNotCollideAndOrderCounts) {
  std::set<std::pair<std::uint32_t, std::uint32_t>> seen;
  for (std::uint64_t a = 0; a < 40; ++a) {
    for (std::uint64_t b = 0; b < 40; ++b) {
      const PhiloxKey key = philox_key(a, b);
      seen.insert({key.low, key.high});
    }
  }
  EXPECT_EQ(seen.size(), 1600U);
}

TEST(PhiloxUniform, LiesInTheUnitIntervalWithTheRightMean) {
  EXPECT_EQ(philox_uniform(0), 0.F);
  EXPECT_LT(philox_uniform(0xFFFFFFFF), 1.F);
  double sum = 0;
  for (std::uint32_t i = 0; i < 10000; ++i) {
    for (const std::uint32_t word : philox4x32({1, 2}, {i, 0, 0, 0})) {
      sum += static_cast<double>(philox_uniform(word));
    }
  }
  EXPECT_NEAR(sum / 40000, 0.5, 0.01);
}

TEST(PhiloxBelow, ReachesEveryNumberAboutEquallyOften) {
  std::vector<int> counts(7);
  for (std::uint32_t i = 0; i < 7000; ++i) {
    const std::uint64_t drawn = philox_below(philox4x32({3, 4}, {i, 0, 0, 0}), 7);
    ASSERT_LT(drawn, 7U);
    ++counts[drawn];
  }
  for (const int count : counts) {
    EXPECT_NEAR(count, 1000, 150);
  }
  EXPECT_EQ(philox_below({0xFFFFFFFF, 0xFFFFFFFF, 0, 0}, 5), 4U);
}

}  // namespace
}  // namespace transnormer
