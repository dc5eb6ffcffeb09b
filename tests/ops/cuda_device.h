// The CUDA device of the tests that need one.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>

#include "ops/runtime/device.h"
#include "util/error.h"

namespace transnormer {

// Its tests are skipped, with the reason, where no CUDA device can be used. The device is asked for
// before the test touches LibTorch, which looks for CUDA once only.
class CudaTest : public testing::Test {
 protected:
  void SetUp() override {
    try {
      device = ops::select_device(DeviceChoice::cuda);
    } catch (const UserError& error) {
      GTEST_SKIP() << error.what();
    }
    // LibTorch asks for this at the first product and remembers the answer; a later test of the
    // same process may want determinism.
    setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", 0);
    ops::configure_threads(2, /*deterministic=*/false);
  }

  at::Device device = at::kCPU;
};

}  // namespace transnormer
