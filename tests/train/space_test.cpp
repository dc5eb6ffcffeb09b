#include "train/space.h"

#include <gtest/gtest.h>

namespace transnormer {
namespace {

Config config_of(std::int64_t keep_last, bool keep_best) {
  Config config;
  config.data.valid = {"valid.txt"};
  config.validation.every = 1000;
  config.checkpoint.every = 1000;
  config.checkpoint.keep_last = keep_last;
  config.checkpoint.keep_best = keep_best;
  return config;
}

TEST(Space, ALongRunNeedsRoomForWhatItKeepsAndTheOneBeingWritten) {
  EXPECT_EQ(checkpoints_to_come(config_of(2, false), 0, 100'000, 0), 3);
  EXPECT_EQ(checkpoints_to_come(config_of(2, true), 0, 100'000, 0), 4);
  EXPECT_EQ(checkpoints_to_come(config_of(7, true), 0, 100'000, 0), 9);
}

TEST(Space, NoBestIsKeptWhereNothingIsValidated) {
  Config config = config_of(2, true);
  config.data.valid.clear();
  EXPECT_EQ(checkpoints_to_come(config, 0, 100'000, 0), 3);
}

TEST(Space, WhatARunHoldsAlreadyNeedsNoMore) {
  EXPECT_EQ(checkpoints_to_come(config_of(2, true), 50'000, 100'000, 1), 3);
  EXPECT_EQ(checkpoints_to_come(config_of(2, true), 50'000, 100'000, 3), 1);
  EXPECT_EQ(checkpoints_to_come(config_of(2, true), 50'000, 100'000, 40), 1);
}

TEST(Space, AShortRunNeedsRoomForNoMoreThanItSaves) {
  EXPECT_EQ(checkpoints_to_come(config_of(20, false), 0, 2'500, 0), 3);
  EXPECT_EQ(checkpoints_to_come(config_of(20, false), 2'100, 2'500, 0), 1);
  Config config = config_of(20, false);
  config.checkpoint.every = 0;
  EXPECT_EQ(checkpoints_to_come(config, 0, 100'000, 0), 1);
}

}  // namespace
}  // namespace transnormer
