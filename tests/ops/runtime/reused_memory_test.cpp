#include "ops/runtime/reused_memory.h"

#include <ATen/ATen.h>
#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>

#include <optional>
#include <set>
#include <thread>

namespace transnormer::ops {
namespace {

TEST(ReusedMemory, OfTensorsThatWentServesTheNextOfASimilarSize) {
  const ReusedMemory memory;
  std::set<const void*> places;
  for (int step = 0; step < 5; ++step) {
    const ReusedMemory::Use use(memory);
    const at::Tensor a = at::full({1000 - step}, step), b = at::full({1000}, -1);
    places.insert(a.const_data_ptr());
    places.insert(b.const_data_ptr());
    EXPECT_TRUE(at::equal(a, at::full({1000 - step}, step)));
  }
  EXPECT_LE(places.size(), 3U);
}

TEST(ReusedMemory, IsNotTakenFromATensorThatLives) {
  const ReusedMemory memory;
  at::Tensor kept;
  {
    const ReusedMemory::Use use(memory);
    kept = at::full({100}, 1);
  }
  for (int step = 0; step < 3; ++step) {
    const ReusedMemory::Use use(memory);
    (void)at::full({100}, 2);
  }
  EXPECT_TRUE(at::equal(kept, at::ones({100}, at::kLong)));
}

TEST(ReusedMemory, OutlivesItsOwnerWithATensorAndIsGivenBackByAnyThread) {
  std::optional<ReusedMemory> memory(std::in_place);
  at::Tensor kept;
  {
    const ReusedMemory::Use use(*memory);
    kept = at::full({100}, 7);
  }
  memory.reset();
  EXPECT_TRUE(at::equal(kept, at::full({100}, 7)));
  std::thread([moved = std::move(kept)]() mutable { moved.reset(); }).join();
}

// As libraries of products take their scratch memory.
TEST(ReusedMemory, ServesWhoTakesMemoryWithoutATensor) {
  const ReusedMemory memory;
  void* inside = nullptr;
  void* const outside = c10::GetCPUAllocator()->raw_allocate(100);
  {
    const ReusedMemory::Use use(memory);
    inside = c10::GetCPUAllocator()->raw_allocate(100);
    c10::GetCPUAllocator()->raw_deallocate(outside);
  }
  c10::GetCPUAllocator()->raw_deallocate(inside);
  const ReusedMemory::Use use(memory);
  EXPECT_EQ(at::empty({100}, at::kByte).const_data_ptr(), inside);  // it was given back
}

TEST(ReusedMemory, IsForItsUseAlone) {
  const ReusedMemory memory;
  const void* reused = nullptr;
  {
    const ReusedMemory::Use use(memory);
    reused = at::empty({64}).const_data_ptr();
  }
  const at::Tensor other = at::empty({64});
  EXPECT_NE(other.const_data_ptr(), reused);
  const ReusedMemory::Use use(memory);
  EXPECT_EQ(at::empty({64}).const_data_ptr(), reused);
}

TEST(ReusedMemory, GoesOnInItsUseBehindAnotherWithinIt) {
  const ReusedMemory outer, inner;
  const ReusedMemory::Use use(outer);
  const void* const reused = at::empty({64}).const_data_ptr();
  {
    const ReusedMemory::Use within(inner);
    EXPECT_NE(at::empty({64}).const_data_ptr(), reused);
  }
  EXPECT_EQ(at::empty({64}).const_data_ptr(), reused);
}

}  // namespace
}  // namespace transnormer::ops
