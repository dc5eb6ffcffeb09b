#include "task/batch_loader.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "data/sample_order.h"
#include "task/counting_task.h"
#include "util/error.h"

namespace transnormer {
namespace {

// 13 samples, the last of two targets.
std::shared_ptr<const Task> thirteen_samples() {
  return test::counting_task(50, 4);
}

at::Tensor rows_of(const std::vector<Batch>& batches) {
  std::vector<at::Tensor> targets;
  for (const Batch& batch : batches) {
    targets.push_back(batch.tensors.at("targets"));
  }
  return at::cat(targets);
}

TEST(BatchLoader, GivesEachUpdateItsPositionsOfTheEndlessOrder) {
  const auto task = thirteen_samples();
  BatchLoader loader(task, {.global_batch_size = 5, .micro_batch_size = 5, .seed = 3});
  SampleOrder order(task->samples(), 3);
  for (std::int64_t update = 0; update < 8; ++update) {  // three epochs
    std::vector<std::int64_t> numbers;
    for (std::int64_t position = 5 * update; position < 5 * (update + 1); ++position) {
      numbers.push_back(order.sample_at(position));
    }
    const Batch expected = task->make_batch(numbers, 5 * update, 5);
    const std::vector<Batch> batches = loader.next_update();
    ASSERT_EQ(batches.size(), 1U);
    EXPECT_EQ(batches[0].first_position, 5 * update);
    for (const auto& [name, tensor] : expected.tensors) {
      EXPECT_TRUE(at::equal(batches[0].tensors.at(name), tensor)) << name;
    }
    EXPECT_EQ(batches[0].count, expected.count);
    EXPECT_EQ(batches[0].samples, 5);
  }
}

TEST(BatchLoader, FillsAShortLastMicroBatchWithMaskedRowsWhereAllAreToHaveAsMany) {
  BatchLoader plain(thirteen_samples(), {.global_batch_size = 7, .micro_batch_size = 3});
  BatchLoader filled(thirteen_samples(),
                     {.global_batch_size = 7, .micro_batch_size = 3, .equal_rows = true});
  const Batch last = plain.next_update().back();
  const Batch same = filled.next_update().back();
  EXPECT_EQ(same.samples, 1);
  EXPECT_EQ(same.count, last.count);
  const at::Tensor targets = same.tensors.at("targets");
  EXPECT_TRUE(at::equal(targets.narrow(0, 0, 1), last.tensors.at("targets")));
  EXPECT_TRUE(targets.narrow(0, 1, 2).eq(kIgnoredTarget).all().item<bool>());
}

TEST(BatchLoader, CutsUpdatesIntoMicroBatchesWithoutChangingThem) {
  BatchLoader whole(thirteen_samples(), {.global_batch_size = 7, .micro_batch_size = 7});
  BatchLoader cut(thirteen_samples(), {.global_batch_size = 7, .micro_batch_size = 3});
  for (int update = 0; update < 5; ++update) {
    const std::vector<Batch> one = whole.next_update();
    const std::vector<Batch> parts = cut.next_update();
    ASSERT_EQ(parts.size(), 3U);
    EXPECT_EQ(parts[2].samples, 1);
    EXPECT_EQ(parts[1].first_position, one[0].first_position + 3);
    EXPECT_TRUE(at::equal(rows_of(parts), rows_of(one)));
  }
}

TEST(BatchLoader, GoesOnFromAnyUpdateAsIfItHadNeverStopped) {
  BatchLoader::Options options{.global_batch_size = 6, .micro_batch_size = 4, .seed = 9};
  BatchLoader straight(thirteen_samples(), options);
  for (int update = 0; update < 11; ++update) {
    static_cast<void>(straight.next_update());
  }
  options.first_update = 11;
  BatchLoader resumed(thirteen_samples(), options);
  for (int update = 0; update < 4; ++update) {
    EXPECT_TRUE(at::equal(rows_of(resumed.next_update()), rows_of(straight.next_update())));
  }
}

TEST(BatchLoader, CanBeDroppedWhileItsThreadWaits) {
  const BatchLoader loader(thirteen_samples(), {.global_batch_size = 1, .micro_batch_size = 1});
  EXPECT_GE(loader.waited_seconds(), 0);
}

TEST(BatchLoader, HoldsFewUpdatesWhereOneIsLarge) {
  const auto bytes = [](std::int64_t samples) {
    return BatchLoader::held_bytes({.global_batch_size = samples, .micro_batch_size = samples},
                                   2.0 * 8 * 512);
  };
  const auto tokens = [](std::int64_t samples) { return 2.0 * 8 * 512 * samples; };
  EXPECT_NEAR(bytes(128), 5 * tokens(128), 1000);
  EXPECT_NEAR(bytes(10'000'000), 2 * tokens(10'000'000), 1000);
  // Many micro-batches take some memory of their own.
  EXPECT_GT(BatchLoader::held_bytes({.global_batch_size = 10'000'000, .micro_batch_size = 1}, 16),
            4 * 16.0 * 10'000'000);
}

TEST(BatchLoader, CanBeDroppedWhileAnUpdateIsMade) {
  const BatchLoader loader(thirteen_samples(),
                           {.global_batch_size = 1'000'000'000, .micro_batch_size = 1'000});
  EXPECT_EQ(loader.waited_seconds(), 0);
}

TEST(BatchLoader, TellsWhichSettingIsTooLargeForTheMemory) {
  BatchLoader loader(thirteen_samples(), {.global_batch_size = 1'000'000'000'000'000});
  try {
    static_cast<void>(loader.next_update());
    FAIL() << "made";
  } catch (const UserError& error) {
    EXPECT_TRUE(std::string(error.what()).starts_with("train.global_batch_size:")) << error.what();
  }
}

TEST(BatchLoader, RefusesAnEmptyStream) {
  EXPECT_THROW(BatchLoader(test::counting_task(0, 4), {}), UserError);
}

}  // namespace
}  // namespace transnormer
