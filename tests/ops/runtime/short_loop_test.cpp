#include "ops/runtime/short_loop.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <vector>

namespace transnormer::ops {
namespace {

class ShortLoop : public testing::Test {
 protected:
  ShortLoop() { at::set_num_threads(3); }
  ~ShortLoop() override { at::set_num_threads(before_); }
  ShortLoop(const ShortLoop&) = delete;
  ShortLoop& operator=(const ShortLoop&) = delete;

 private:
  int before_ = at::get_num_threads();
};

TEST_F(ShortLoop, WorksOnEachPlaceOnce) {
  for (const std::int64_t count : {0, 1, 5, 16, 17, 1000, 70'001}) {
    for (const std::int64_t grain : {1, 16, 100}) {
      std::vector<std::atomic<int>> seen(static_cast<std::size_t>(count));
      short_parallel_for(count, grain, [&](std::int64_t first, std::int64_t last) {
        EXPECT_EQ(first % grain, 0);
        for (std::int64_t i = first; i < last; ++i) {
          ++seen[static_cast<std::size_t>(i)];
        }
      });
      for (const auto& times : seen) {
        ASSERT_EQ(times, 1) << count << ' ' << grain;
      }
    }
  }
}

TEST_F(ShortLoop, OneAfterTheOtherNeverMixes) {
  for (int loop = 0; loop < 20'000; ++loop) {
    std::atomic<std::int64_t> sum = 0;
    short_parallel_for(8, 1, [&](std::int64_t first, std::int64_t) { sum += loop + first; });
    ASSERT_EQ(sum, 8 * loop + 28);
  }
}

// Each part waits until another one has begun, which it never does on the same thread.
TEST_F(ShortLoop, IsSharedWithAnotherThread) {
  std::this_thread::sleep_for(std::chrono::milliseconds(5));  // so that the others sleep
  std::atomic<int> begun = 0;
  std::atomic<bool> alone = false;
  short_parallel_for(2, 1, [&](std::int64_t, std::int64_t) {
    ++begun;
    const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (begun < 2 && !alone) {
      alone = std::chrono::steady_clock::now() > patience;
      std::this_thread::yield();
    }
  });
  EXPECT_FALSE(alone);
}

// Two parts that wait for each other, so that another thread takes one: that one throws.
TEST_F(ShortLoop, ThrowsHereWhatABodyThrowsOnAnotherThread) {
  const auto self = std::this_thread::get_id();
  std::atomic<int> begun = 0;
  const auto body = [&](std::int64_t, std::int64_t) {
    ++begun;
    const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (begun < 2 && std::chrono::steady_clock::now() < patience) {
      std::this_thread::yield();
    }
    if (std::this_thread::get_id() != self) {
      throw std::runtime_error("a part");
    }
  };
  EXPECT_THROW(short_parallel_for(2, 1, body), std::runtime_error);
}

TEST_F(ShortLoop, ThatThrowsIsDoneBeforeTheNextBegins) {
  for (int loop = 0; loop < 1000; ++loop) {
    std::atomic<int> parts = 0;
    const auto failing = [&](std::int64_t first, std::int64_t) {
      ++parts;
      if (first % 2 == 0) {
        throw std::runtime_error("a part");
      }
    };
    ASSERT_THROW(short_parallel_for(8, 1, failing), std::runtime_error);
    ASSERT_EQ(parts, 8);
    short_parallel_for(8, 1, [&](std::int64_t, std::int64_t) { ++parts; });
    ASSERT_EQ(parts, 16);
  }
}

TEST_F(ShortLoop, StaysOnThisThreadWhereThereIsOneOnly) {
  at::set_num_threads(1);
  const auto self = std::this_thread::get_id();
  short_parallel_for(1000, 1, [&](std::int64_t first, std::int64_t last) {
    EXPECT_EQ(std::this_thread::get_id(), self);
    EXPECT_EQ(last - first, 1000);
  });
}

TEST_F(ShortLoop, OfSeveralThreadsAtOnceAllFinish) {
  std::vector<std::jthread> callers;
  std::atomic<std::int64_t> sum = 0;
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&sum] {
      at::set_num_threads(3);
      for (int loop = 0; loop < 500; ++loop) {
        short_parallel_for(10, 1,
                           [&](std::int64_t first, std::int64_t last) { sum += last - first; });
      }
    });
  }
  callers.clear();
  EXPECT_EQ(sum, 4 * 500 * 10);
}

}  // namespace
}  // namespace transnormer::ops
