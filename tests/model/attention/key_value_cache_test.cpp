#include "model/attention/key_value_cache.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace transnormer {
namespace {

at::Tensor numbers(std::int64_t first, std::int64_t count) {
  return at::arange(first * 6, (first + count) * 6, at::kFloat).view({1, count, 2, 3});
}

TEST(KeyValueCache, HoldsWhatWasAppendedThroughItsGrowth) {
  KeyValueCache cache(1000);
  for (std::int64_t t = 0; t < 100; ++t) {
    cache.append(numbers(t, 1), -numbers(t, 1));
  }
  cache.append(numbers(100, 37), -numbers(100, 37));
  EXPECT_EQ(cache.size(), 137);
  EXPECT_TRUE(at::equal(cache.keys(), numbers(0, 137)));
  EXPECT_TRUE(at::equal(cache.values(), -numbers(0, 137)));
}

TEST(KeyValueCache, KeepsValuesOfAnotherWidthThanTheKeys) {
  for (const std::int64_t value_dim : {5, 1}) {
    const at::Tensor values =
        at::arange(50 * 2 * value_dim, at::kFloat).view({1, 50, 2, value_dim});
    KeyValueCache cache(1000);
    for (std::int64_t t = 0; t < 50; ++t) {
      cache.append(numbers(t, 1), values.narrow(1, t, 1));
    }
    EXPECT_TRUE(at::equal(cache.keys(), numbers(0, 50)));
    EXPECT_TRUE(at::equal(cache.values(), values));
  }
}

TEST(KeyValueCache, NeverTakesMoreThanItsLimit) {
  KeyValueCache cache(20);
  for (int round = 0; round < 3; ++round) {
    for (std::int64_t t = 0; t < 20; ++t) {
      cache.append(numbers(t, 1), numbers(t, 1));
    }
    EXPECT_EQ(cache.bytes(), 2 * 20 * 6 * 4);
    cache.clear();
    EXPECT_EQ(cache.size(), 0);
  }
}

TEST(KeyValueCache, BecomesThatOfSeveralSequencesAlike) {
  KeyValueCache cache(1000);
  cache.repeat(2);  // of nothing yet
  cache.append(numbers(0, 20), -numbers(0, 20));
  cache.repeat(3);
  cache.append(numbers(20, 1).repeat({3, 1, 1, 1}), -numbers(20, 1).repeat({3, 1, 1, 1}));
  EXPECT_EQ(cache.size(), 21);
  EXPECT_TRUE(at::equal(cache.keys(), numbers(0, 21).repeat({3, 1, 1, 1})));
  EXPECT_TRUE(at::equal(cache.values(), -numbers(0, 21).repeat({3, 1, 1, 1})));
}

}  // namespace
}  // namespace transnormer
