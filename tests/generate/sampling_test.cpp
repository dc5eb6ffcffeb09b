#include "generate/sampling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include "util/error.h"

namespace transnormer {
namespace {

using testing::ElementsAre;
using testing::Key;

constexpr std::int64_t kDraws = 20000;

std::vector<float> logits_of(const std::vector<double>& probabilities) {
  std::vector<float> logits;
  for (const double p : probabilities) {
    logits.push_back(static_cast<float>(std::log(p)) + 3.0F);  // softmax does not see the shift
  }
  return logits;
}

// The share of each token among many draws.
std::map<TokenId, double> shares(const std::vector<float>& logits, const SamplingOptions& options) {
  std::map<TokenId, double> seen;
  for (std::int64_t i = 0; i < kDraws; ++i) {
    seen[Sampler(options).sample(logits, static_cast<std::uint64_t>(i))] += 1.0 / kDraws;
  }
  return seen;
}

TEST(Sampling, DrawsTokensAsOftenAsTheirProbability) {
  const auto seen = shares(logits_of({0.1, 0.6, 0.3}), {});
  EXPECT_THAT(seen, ElementsAre(Key(0), Key(1), Key(2)));
  EXPECT_NEAR(seen.at(0), 0.1, 0.01);
  EXPECT_NEAR(seen.at(1), 0.6, 0.015);
  EXPECT_NEAR(seen.at(2), 0.3, 0.015);
}

TEST(Sampling, TemperatureDividesTheLogits) {
  // At temperature 1/2 the probabilities go as their squares: 1 : 16 : 9.
  const auto seen = shares(logits_of({0.1, 0.4, 0.3}), {.temperature = 0.5});
  EXPECT_NEAR(seen.at(0), 1.0 / 26, 0.01);
  EXPECT_NEAR(seen.at(1), 16.0 / 26, 0.015);
  EXPECT_NEAR(seen.at(2), 9.0 / 26, 0.015);
}

TEST(Sampling, TopKKeepsTheKMostLikelyInTheirOldProportion) {
  const auto seen = shares(logits_of({0.1, 0.4, 0.2, 0.3}), {.top_k = 2});
  EXPECT_THAT(seen, ElementsAre(Key(1), Key(3)));
  EXPECT_NEAR(seen.at(1), 4.0 / 7, 0.015);
}

TEST(Sampling, TopPKeepsTheFewestTokensThatReachP) {
  const std::vector<float> logits = logits_of({0.1, 0.4, 0.2, 0.3});
  EXPECT_THAT(shares(logits, {.top_p = 0.35}), ElementsAre(Key(1)));
  EXPECT_THAT(shares(logits, {.top_p = 0.65}), ElementsAre(Key(1), Key(3)));
  EXPECT_THAT(shares(logits, {.top_p = 0.75}), ElementsAre(Key(1), Key(2), Key(3)));
  EXPECT_THAT(shares(logits, {.top_p = 0.95}), ElementsAre(Key(0), Key(1), Key(2), Key(3)));
}

TEST(Sampling, TopPCountsShareOfWhatTopKLeft) {
  // Of {0.4, 0.3} the first alone has 4/7 = 0.571.
  const std::vector<float> logits = logits_of({0.1, 0.4, 0.2, 0.3});
  EXPECT_THAT(shares(logits, {.top_k = 2, .top_p = 0.55}), ElementsAre(Key(1)));
  EXPECT_THAT(shares(logits, {.top_k = 2, .top_p = 0.6}), ElementsAre(Key(1), Key(3)));
}

TEST(Sampling, EqualLogitsRankByTokenId) {
  const std::vector<float> logits{0.0F, 2.0F, 2.0F, 1.0F, 2.0F};
  EXPECT_EQ(Sampler({.temperature = 0}).sample(logits, 0), 1);
  EXPECT_THAT(shares(logits, {.top_k = 1}), ElementsAre(Key(1)));
  EXPECT_THAT(shares(logits, {.top_k = 2}), ElementsAre(Key(1), Key(2)));
  EXPECT_THAT(shares(logits, {.top_p = 0.01}), ElementsAre(Key(1)));
}

TEST(Sampling, TemperatureZeroTakesTheMostLikelyAtAnySeed) {
  const std::vector<float> logits = logits_of({0.1, 0.3, 0.35, 0.25});
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    EXPECT_EQ(Sampler({.temperature = 0, .seed = seed}).sample(logits, seed), 2);
  }
}

TEST(Sampling, IsAFunctionOfSeedAndIndex) {
  const std::vector<float> logits(100, 0.0F);
  const auto sequence = [&logits](std::uint64_t seed) {
    std::vector<TokenId> ids;
    for (std::uint64_t i = 0; i < 20; ++i) {
      ids.push_back(Sampler({.seed = seed}).sample(logits, i));
    }
    return ids;
  };
  EXPECT_EQ(sequence(7), sequence(7));
  EXPECT_NE(sequence(7), sequence(8));
}

TEST(Sampling, NeverDrawsATokenOfProbabilityZero) {
  // exp(-2000) is 0 in double; the last token must not catch what rounding leaves.
  const auto seen = shares({0.0F, -2000.0F, 0.0F, -2000.0F}, {});
  EXPECT_THAT(seen, ElementsAre(Key(0), Key(2)));
}

TEST(Sampling, RefusesOptionsOutOfRangeAllAtOnce) {
  EXPECT_NO_THROW(check(SamplingOptions{.temperature = 0, .top_k = 0, .top_p = 1}));
  EXPECT_THROW(check(SamplingOptions{.top_p = 0}), UserError);
  EXPECT_THROW(check(SamplingOptions{.top_p = std::nan("")}), UserError);
  EXPECT_THROW(check(SamplingOptions{.temperature = std::numeric_limits<double>::infinity()}),
               UserError);
  try {
    check(SamplingOptions{.temperature = -1, .top_k = -1, .top_p = 1.5});
    FAIL() << "nothing was thrown";
  } catch (const UserError& error) {
    EXPECT_EQ(error.faults().size(), 3U);
  }
}

TEST(Sampling, RefusesLogitsThatAreNotNumbers) {
  EXPECT_THROW((void)Sampler({}).sample(std::vector<float>{0.0F, std::nanf("")}, 0), UserError);
}

TEST(Sampling, EachSampleIsAStreamOfDrawsOfItsOwn) {
  const std::vector<float> logits = logits_of(std::vector<double>(50, 0.02));
  const auto drawn = [&logits](std::uint64_t sample) {
    std::vector<TokenId> tokens;
    for (std::uint64_t i = 0; i < 20; ++i) {
      tokens.push_back(Sampler({.sample = sample}).sample(logits, i));
    }
    return tokens;
  };
  EXPECT_EQ(drawn(3), drawn(3));
  EXPECT_NE(drawn(3), drawn(0));
  EXPECT_NE(drawn(std::uint64_t{1} << 32), drawn(0));
}

TEST(RepetitionPenalty, DividesPositiveLogitsOfSeenTokensAndMultipliesNegativeOnesOnce) {
  const std::vector<float> logits{2.5F, -1.5F, 0.0F, 4.0F, -3.0F};
  const std::vector<TokenId> seen{4, 0, 4, 2, 1, 4};
  for (const double penalty : {1.3, 0.5}) {
    RepetitionPenalty given(penalty);
    std::vector<float> expected = logits;
    for (const TokenId id : seen) {
      given.see(id);
      const float logit = logits[static_cast<std::size_t>(id)];
      expected[static_cast<std::size_t>(id)] =
          static_cast<float>(logit > 0 ? logit / penalty : logit * penalty);
    }
    std::vector<float> found = logits;
    given.apply(found);
    EXPECT_EQ(found, expected);
  }
  EXPECT_EQ(logits[3], 4.0F);  // was never seen
}

TEST(RepetitionPenalty, OfOneLeavesEveryLogit) {
  RepetitionPenalty none(1);
  none.see(1);
  std::vector<float> logits{0.1F, 0.7F, -0.3F};
  const std::vector<float> before = logits;
  none.apply(logits);
  EXPECT_EQ(logits, before);
}

TEST(RepetitionPenalty, IsRefusedOutOfItsRange) {
  for (const double penalty : {0.0, -1.0, 1001.0, std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_THROW(check(SamplingOptions{.repetition_penalty = penalty}), UserError) << penalty;
  }
  EXPECT_NO_THROW(check(SamplingOptions{.repetition_penalty = 1.2}));
}

}  // namespace
}  // namespace transnormer
