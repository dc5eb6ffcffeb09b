#include "ops/runtime/device.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "util/error.h"

namespace transnormer::ops {
namespace {

bool driver_present() {
  return dlopen("libcuda.so.1", RTLD_LAZY) != nullptr;
}

TEST(Device, CpuIsTheCpu) {
  EXPECT_TRUE(select_device(DeviceChoice::cpu).is_cpu());
}

TEST(Device, AutomaticFallsBackToTheCpuWithoutAGpu) {
  if (driver_present()) {
    GTEST_SKIP() << "this machine has an NVIDIA driver";
  }
  EXPECT_TRUE(select_device(DeviceChoice::automatic).is_cpu());
}

TEST(Device, CudaWithoutAGpuIsTheUsersFaultInOneLine) {
  if (driver_present()) {
    GTEST_SKIP() << "this machine has an NVIDIA driver";
  }
  try {
    (void)select_device(DeviceChoice::cuda);
    FAIL() << "accepted";
  } catch (const UserError& error) {
    ASSERT_EQ(error.faults().size(), 1U);
    EXPECT_THAT(error.faults()[0], testing::HasSubstr("--device cpu"));
    EXPECT_THAT(error.faults()[0], testing::Not(testing::HasSubstr("\n")));
  }
}

TEST(Threads, AreSetAsTold) {
  const int before = at::get_num_threads();
  configure_threads(1, false);
  EXPECT_EQ(at::get_num_threads(), 1);
  configure_threads(0, true);
  EXPECT_TRUE(at::globalContext().deterministicAlgorithms());
  EXPECT_FALSE(at::globalContext().deterministicFillUninitializedMemory());
  configure_threads(before, false);
  EXPECT_FALSE(at::globalContext().deterministicAlgorithms());
}

TEST(HalfPrecision, IsSummedUpInSinglePrecisionByAGpusProducts) {
  configure_threads(1, false);
  const at::Context& context = at::globalContext();
  EXPECT_EQ(context.allowBF16ReductionCuBLAS(),
            at::CuBLASReductionOption::DisallowReducedPrecisionAllowSplitK);
  EXPECT_EQ(context.allowFP16ReductionCuBLAS(),
            at::CuBLASReductionOption::DisallowReducedPrecisionAllowSplitK);
  EXPECT_FALSE(context.allowFP16AccumulationCuBLAS());
}

TEST(Precisions, MapToTypes) {
  EXPECT_EQ(scalar_type(Precision::fp32), at::kFloat);
  EXPECT_EQ(scalar_type(Precision::bf16), at::kBFloat16);
  EXPECT_EQ(scalar_type(Precision::fp16), at::kHalf);
}

}  // namespace
}  // namespace transnormer::ops
