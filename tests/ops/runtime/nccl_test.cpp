#include "ops/runtime/nccl.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dist/engine.h"
#include "ops/runtime/cuda_library.h"
#include "util/error.h"

namespace transnormer::ops {
namespace {

TEST(Nccl, IsNotForACpu) {
  EXPECT_FALSE(nccl_engines(at::kCPU));
}

TEST(Nccl, SaysWhatToInstallWhereTheLibraryIsMissing) {
  if (cuda_library() != nullptr) {
    GTEST_SKIP() << "a test before has loaded the library";
  }
  const dist::EngineMaker make = nccl_engines({at::kCUDA, 0});
  ASSERT_TRUE(make);
  try {
    (void)make({});
    FAIL() << "nothing was thrown";
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("install a CUDA compiler (nvcc)"));
  }
}

}  // namespace
}  // namespace transnormer::ops
