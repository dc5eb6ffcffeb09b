// The GPU's library can be loaded and is complete; this needs no GPU.
#include "ops/runtime/cuda_library.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>

#include "ops/trust/kernel_names.h"

namespace transnormer::ops {
namespace {

TEST(CudaLibrary, IsFoundBesideTheProgramAndHasEveryKernel) {
  ASSERT_NE(dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL), nullptr) << dlerror();
  ASSERT_EQ(cuda_library(), nullptr);
  ASSERT_EQ(load_cuda_library(), "");
  ASSERT_NE(cuda_library(), nullptr);
  const CudaLibrary& library = *cuda_library();
  // The table is pointers from the first to the last, which alone may be missing.
  const void* entries[offsetof(CudaLibrary, nccl_engine) / sizeof(void*)];
  static_assert(sizeof entries + sizeof library.nccl_engine == sizeof library);
  std::memcpy(entries, &library, sizeof entries);
  for (const void* entry : entries) {
    EXPECT_NE(entry, nullptr);
  }
  for_each_kernel(
      [&](const char* name, auto kernel) { EXPECT_NE(library.kernels->*kernel, nullptr) << name; });
  EXPECT_STREQ(library.kernels->name, "cuda");
  EXPECT_EQ(library.nccl_engine != nullptr, TRANSNORMER_HAS_NCCL);
}

}  // namespace
}  // namespace transnormer::ops
