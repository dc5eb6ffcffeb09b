#include <gtest/gtest.h>

#include <numeric>

#include "data/batches.h"
#include "util/error.h"

namespace transnormer {
namespace {

Samples counting_samples() {
  std::vector<TokenId> tokens(50);
  std::iota(tokens.begin(), tokens.end(), 0);
  return {TokenStream(std::move(tokens)), 4, 2};  // 13 samples, the last of two targets
}

std::vector<std::int64_t> rows_of(const std::vector<Batch>& batches) {
  std::vector<std::int64_t> targets;
  for (const Batch& batch : batches) {
    targets.insert(targets.end(), batch.targets.begin(), batch.targets.end());
  }
  return targets;
}

TEST(BatchLoader, GivesEachUpdateItsPositionsOfTheEndlessOrder) {
  const Samples samples = counting_samples();
  BatchLoader loader(samples, {.global_batch_size = 5, .micro_batch_size = 5, .seed = 3});
  SampleOrder order(samples.count(), 3);
  for (std::int64_t update = 0; update < 8; ++update) {  // three epochs
    Batch expected;
    for (std::int64_t position = 5 * update; position < 5 * (update + 1); ++position) {
      samples.append(order.sample_at(position), expected);
    }
    const std::vector<Batch> batches = loader.next_update();
    ASSERT_EQ(batches.size(), 1U);
    EXPECT_EQ(batches[0].first_position, 5 * update);
    EXPECT_EQ(batches[0].inputs, expected.inputs);
    EXPECT_EQ(batches[0].targets, expected.targets);
    EXPECT_EQ(batches[0].target_tokens, expected.target_tokens);
    EXPECT_EQ(batches[0].samples, 5);
  }
}

TEST(BatchLoader, CutsUpdatesIntoMicroBatchesWithoutChangingThem) {
  BatchLoader whole(counting_samples(), {.global_batch_size = 7, .micro_batch_size = 7});
  BatchLoader cut(counting_samples(), {.global_batch_size = 7, .micro_batch_size = 3});
  for (int update = 0; update < 5; ++update) {
    const std::vector<Batch> one = whole.next_update();
    const std::vector<Batch> parts = cut.next_update();
    ASSERT_EQ(parts.size(), 3U);
    EXPECT_EQ(parts[2].samples, 1);
    EXPECT_EQ(parts[1].first_position, one[0].first_position + 3);
    EXPECT_EQ(rows_of(parts), rows_of(one));
  }
}

TEST(BatchLoader, GoesOnFromAnyUpdateAsIfItHadNeverStopped) {
  BatchLoader::Options options{.global_batch_size = 6, .micro_batch_size = 4, .seed = 9};
  BatchLoader straight(counting_samples(), options);
  for (int update = 0; update < 11; ++update) {
    static_cast<void>(straight.next_update());
  }
  options.first_update = 11;
  BatchLoader resumed(counting_samples(), options);
  for (int update = 0; update < 4; ++update) {
    EXPECT_EQ(rows_of(resumed.next_update()), rows_of(straight.next_update()));
  }
}

TEST(BatchLoader, CanBeDroppedWhileItsThreadWaits) {
  const BatchLoader loader(counting_samples(), {.global_batch_size = 1, .micro_batch_size = 1});
  EXPECT_GE(loader.waited_seconds(), 0);
}

TEST(BatchLoader, HoldsFewUpdatesWhereOneIsLarge) {
  const auto bytes = [](std::int64_t samples) {
    return BatchLoader::held_bytes({.global_batch_size = samples, .micro_batch_size = samples},
                                   512);
  };
  const auto tokens = [](std::int64_t samples) { return 2.0 * 8 * 512 * samples; };
  EXPECT_NEAR(bytes(128), 5 * tokens(128), 1000);
  EXPECT_NEAR(bytes(10'000'000), 2 * tokens(10'000'000), 1000);
  // Many micro-batches take some memory of their own.
  EXPECT_GT(BatchLoader::held_bytes({.global_batch_size = 10'000'000, .micro_batch_size = 1}, 1),
            4 * 16.0 * 10'000'000);
}

TEST(BatchLoader, CanBeDroppedWhileAnUpdateIsMade) {
  const BatchLoader loader(counting_samples(),
                           {.global_batch_size = 1'000'000'000, .micro_batch_size = 1'000});
  EXPECT_EQ(loader.waited_seconds(), 0);
}

TEST(BatchLoader, TellsWhichSettingIsTooLargeForTheMemory) {
  BatchLoader loader(counting_samples(), {.global_batch_size = 1'000'000'000'000'000});
  try {
    static_cast<void>(loader.next_update());
    FAIL() << "made";
  } catch (const UserError& error) {
    EXPECT_TRUE(std::string(error.what()).starts_with("train.global_batch_size:")) << error.what();
  }
}

TEST(BatchLoader, RefusesAnEmptyStream) {
  EXPECT_THROW(BatchLoader(Samples(TokenStream(std::vector<TokenId>{}), 4, 2), {}), UserError);
}

}  // namespace
}  // namespace transnormer
