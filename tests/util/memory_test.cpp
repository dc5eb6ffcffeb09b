#include "util/memory.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstring>
#include <memory>
#include <vector>

namespace transnormer {
namespace {

constexpr std::int64_t kMebibyte = 1 << 20;

TEST(Memory, OfTheProcessIsLessThanTheMachines) {
  EXPECT_GT(resident_memory_bytes(), kMebibyte);
  EXPECT_GE(peak_memory_bytes(), resident_memory_bytes() - kMebibyte);
  EXPECT_GT(machine_memory_bytes(), resident_memory_bytes());
}

TEST(Memory, OfTheMachineIsNoMoreThanTheProcessMayTake) {
  const std::int64_t before = machine_memory_bytes();
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)  // more than any machine has
  const std::vector resources{RLIMIT_DATA};
#else
  const std::vector resources{RLIMIT_AS, RLIMIT_DATA};
#endif
  for (const auto resource : resources) {
    struct rlimit limit {};
    ASSERT_EQ(::getrlimit(resource, &limit), 0);
    const struct rlimit lower {
      .rlim_cur = static_cast<rlim_t>(before / 2), .rlim_max = limit.rlim_max
    };
    ASSERT_EQ(::setrlimit(resource, &lower), 0);
    EXPECT_EQ(machine_memory_bytes(), before / 2);
    ASSERT_EQ(::setrlimit(resource, &limit), 0);
  }
  EXPECT_EQ(machine_memory_bytes(), before);
}

TEST(Memory, PeakRemembersWhatWasGivenBack) {
  const std::int64_t before = peak_memory_bytes();
  {
    const auto size = static_cast<std::size_t>(64 * kMebibyte);
    const std::unique_ptr<char[]> block(new char[size]);
    std::memset(block.get(), 1, size);
    asm volatile("" : : "r"(block.get()) : "memory");  // the bytes are really written
  }
  EXPECT_GE(peak_memory_bytes(), before + 32 * kMebibyte);
}

TEST(Memory, PeakStartsAnewWhereTheKernelAllows) {
  {
    const auto size = static_cast<std::size_t>(64 * kMebibyte);
    const std::unique_ptr<char[]> block(new char[size]);
    std::memset(block.get(), 1, size);
    asm volatile("" : : "r"(block.get()) : "memory");
  }
  const std::int64_t before = peak_memory_bytes();
  reset_peak_memory();
  if (peak_memory_bytes() == before) {
    GTEST_SKIP() << "this kernel does not let the peak be reset";
  }
  EXPECT_LT(peak_memory_bytes(), before - 32 * kMebibyte);
}

}  // namespace
}  // namespace transnormer
