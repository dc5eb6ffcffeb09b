// The tests start themselves once more to try kernels, as the program does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "ops/runtime/device.h"
#include "ops/trust/judge.h"
#include "ops/trust/lying_kernels.h"
#include "util/child_process.h"

int main(int argc, char** argv) {
  namespace ops = transnormer::ops;
  if (argc == 4 && std::string_view(argv[1]) == ops::kTrialOfLying) {
    transnormer::follow_parent();
    if (std::string_view(argv[2]) == "never ready") {
      return 1;
    }
    ops::configure_threads(1, /*deterministic=*/false);
    return ops::run_trials(ops::lying_kernels(argv[2]), at::kCPU, std::stoul(argv[3]));
  }
  testing::InitGoogleMock(&argc, argv);
  return RUN_ALL_TESTS();
}
