// The GPU's library can be loaded and is complete; this needs no GPU.
#include "ops/runtime/cuda_library.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstring>

namespace transnormer::ops {
namespace {

TEST(CudaLibrary, IsFoundBesideTheProgramAndHasEveryKernel) {
  ASSERT_NE(dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL), nullptr) << dlerror();
  ASSERT_EQ(cuda_library(), nullptr);
  ASSERT_EQ(load_cuda_library(), "");
  ASSERT_NE(cuda_library(), nullptr);
  const CudaLibrary& library = *cuda_library();
  // Both tables are pointers from the first to the last.
  const auto expect_whole = [](const auto& table) {
    const void* entries[sizeof table / sizeof(void*)];
    static_assert(sizeof entries == sizeof table);
    std::memcpy(entries, &table, sizeof table);
    for (const void* entry : entries) {
      EXPECT_NE(entry, nullptr);
    }
  };
  expect_whole(library);
  expect_whole(*library.kernels);
  EXPECT_STREQ(library.kernels->name, "cuda");
}

}  // namespace
}  // namespace transnormer::ops
