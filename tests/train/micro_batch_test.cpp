#include "train/micro_batch.h"

#include <gtest/gtest.h>

#include <vector>

#include "train/small_run.h"
#include "util/memory.h"

namespace transnormer {
namespace {

TEST(LargestThatFits, CutsTheShareIntoAsFewPassesAsMayBe) {
  std::vector<std::int64_t> tried;
  const auto up_to = [&tried](std::int64_t most) {
    tried.clear();
    return largest_that_fits(12, [&tried, most](std::int64_t size) {
      tried.push_back(size);
      return size <= most;
    });
  };
  EXPECT_EQ(up_to(100), 12);
  EXPECT_EQ(up_to(11), 6);
  EXPECT_EQ(up_to(5), 4);
  EXPECT_EQ(up_to(3), 3);
  EXPECT_EQ(up_to(1), 1);
  EXPECT_EQ(up_to(0), 1);  // one has to try
  EXPECT_EQ(tried.front(), 12);
}

TEST(LargestThatFits, AsksFewerTimesThanThereAreSizes) {
  int asked = 0;
  EXPECT_EQ(largest_that_fits(100'000,
                              [&asked](std::int64_t size) {
                                ++asked;
                                return size <= 7;
                              }),
            7);
  EXPECT_LT(asked, 200);
}

class MicroBatchChoice : public testing::Test {
 protected:
  // Of a share that takes a given multiple of the memory that is free.
  [[nodiscard]] MicroBatch choose(double memories, std::int64_t saved = 0) const {
    Config config;
    config.train.micro_batch_size = -1;
    config.train.global_batch_size = kShare;
    const TrainingShape shape{.size = {.vocab_size = 100, .max_positions = 64}, .length = 64};
    const double of_one =
        training_memory(config.model, shape.size, {.state_slots = 2}, {.length = shape.length})
            .activations;
    const auto length = static_cast<std::int64_t>(
        memories * static_cast<double>(free_memory_bytes()) / of_one / kShare * 64);
    const TrainingShape longer{.size = shape.size, .length = length};
    return choose_micro_batch(config, TrainingMemory(config, longer, at::kCPU, dist::alone()),
                              at::kCPU, dist::alone(), saved);
  }
  static constexpr std::int64_t kShare = 64;
};

TEST_F(MicroBatchChoice, IsTheWholeShareWhereThatFits) {
  const MicroBatch chosen = choose(0.1);
  EXPECT_EQ(chosen.size, kShare);
  EXPECT_EQ(chosen.origin, "by estimate");
}

TEST_F(MicroBatchChoice, LeavesRoomWhereTheShareDoesNotFit) {
  // Four memories' worth in passes of 1.3 times the estimate, each in 0.8 of the memory beside what
  // weights take: 1 / (4 · 1.3 / 0.8) of the share.
  const MicroBatch chosen = choose(4);
  EXPECT_GE(chosen.size, kShare / 10);
  EXPECT_LE(chosen.size, kShare / 6);
}

TEST_F(MicroBatchChoice, OfAnEarlierStartIsUsedAgain) {
  EXPECT_EQ(choose(0.1, 5).size, 5);
  EXPECT_EQ(choose(0.1, 5).origin, MicroBatch::kAsBefore);
}

TEST(MicroBatchOfARun, IsSavedAndUsedAgainAndNothingElseMoves) {
  const SmallRun runs;
  const std::vector<std::string> itself{"train.micro_batch_size=-1", "train.global_batch_size=4",
                                        "train.steps=2"};
  ASSERT_EQ(runs.train("own", itself), ExitStatus::done);
  std::vector<std::string> told = itself;
  told[0] = "train.micro_batch_size=4";
  ASSERT_EQ(runs.train("told", told), ExitStatus::done);
  expect_same_weights(runs, "own", "told", 2);

  std::vector<std::string> longer = itself;
  longer[2] = "train.steps=3";
  const auto resumed = set_up(runs.request("own", longer));
  EXPECT_EQ(resumed->micro_batch.size, 4);
  EXPECT_EQ(resumed->micro_batch.origin, MicroBatch::kAsBefore);
  EXPECT_EQ(resumed->state.micro_batch_size, 4);
}

TEST(MicroBatchTrial, LeavesNoTraceInWhatIsTrained) {
  const SmallRun runs;
  const std::vector<std::string> sets{"train.micro_batch_size=-1", "train.global_batch_size=4",
                                      "train.steps=3", "model.dropout=0.1"};
  ASSERT_EQ(runs.train("plain", sets), ExitStatus::done);
  {
    const auto run = set_up(runs.request("tried", sets));
    try_micro_batch(*run);
    EXPECT_EQ(run->micro_batch.size, 4);
    EXPECT_EQ(run->micro_batch.origin, "by trial");
    ASSERT_EQ(train(*run), ExitStatus::done);
  }
  expect_same_weights(runs, "plain", "tried", 3);
}

}  // namespace
}  // namespace transnormer
