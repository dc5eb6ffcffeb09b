#include "data/samples.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace transnormer {
namespace {

using testing::ElementsAre;

TokenStream counting_stream(TokenId count) {
  std::vector<TokenId> tokens(static_cast<std::size_t>(count));
  std::iota(tokens.begin(), tokens.end(), 100);
  return TokenStream(std::move(tokens));
}

struct Row {
  Row(const Samples& samples, std::int64_t index)
      : inputs(static_cast<std::size_t>(samples.length())),
        targets(inputs.size()),
        present(samples.copy(index, inputs.data(), targets.data())) {}
  std::vector<std::int64_t> inputs;
  std::vector<std::int64_t> targets;
  std::int64_t present;
};

TEST(Samples, AreTheStreamCutIntoTargetsWithInputsShiftedByOne) {
  const Samples samples(counting_stream(8), 4, 2);
  ASSERT_EQ(samples.count(), 2);
  const Row first(samples, 0), second(samples, 1);
  EXPECT_THAT(first.inputs, ElementsAre(2, 100, 101, 102));
  EXPECT_THAT(first.targets, ElementsAre(100, 101, 102, 103));
  EXPECT_THAT(second.inputs, ElementsAre(103, 104, 105, 106));
  EXPECT_THAT(second.targets, ElementsAre(104, 105, 106, 107));
  EXPECT_EQ(second.present, 4);
}

TEST(Samples, KeepTheLastShortOneWithItsMissingTargetsMasked) {
  const Samples samples(counting_stream(6), 4, 2);
  ASSERT_EQ(samples.count(), 2);
  const Row last(samples, 1);
  EXPECT_THAT(last.inputs, ElementsAre(103, 104, 2, 2));
  EXPECT_THAT(last.targets, ElementsAre(104, 105, kIgnoredTarget, kIgnoredTarget));
  EXPECT_EQ(last.present, 2);
}

TEST(Samples, WorkForSamplesOfOneToken) {
  const Row one(Samples(counting_stream(3), 1, 2), 2);
  EXPECT_THAT(one.inputs, ElementsAre(101));
  EXPECT_THAT(one.targets, ElementsAre(102));
}

TEST(Samples, AreNotPaddedWhereTheStreamIsShorterThanOne) {
  const Samples samples(counting_stream(3), 1000000000, 2);
  EXPECT_EQ(samples.count(), 1);
  EXPECT_EQ(samples.length(), 3);
  const Row only(samples, 0);
  EXPECT_THAT(only.inputs, ElementsAre(2, 100, 101));
  EXPECT_THAT(only.targets, ElementsAre(100, 101, 102));
  EXPECT_EQ(only.present, 3);
  EXPECT_EQ(Samples(TokenStream(), 5, 2).count(), 0);
}

}  // namespace
}  // namespace transnormer
