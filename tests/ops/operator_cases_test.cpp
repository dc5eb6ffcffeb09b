// Every operator on the CPU against plain operations in double: what the test on a GPU
// (cuda_test.cpp) compares with is itself tried here.
#include "ops/operator_cases.h"

#include <gtest/gtest.h>

#include "ops/runtime/device.h"
#include "ops/runtime/operator_choices.h"

namespace transnormer::ops {
namespace {

TEST(Operators, AgreeWithPlainOnesInDoublePrecision) {
  configure_threads(1, /*deterministic=*/false);  // a second one costs more than it helps here
  for (const OperatorCase& tested : operator_cases()) {
    expect_like_reference(tested, at::kCPU, at::kFloat, 2e-5);
    expect_like_reference(tested, at::kCPU, at::kBFloat16, 2e-2);
    expect_like_reference(tested, at::kCPU, at::kHalf, 4e-3);
  }
}

// What a GPU prefers in half precision.
TEST(Operators, AgreeWithARowPitchAndTheFusedAttentionToo) {
  configure_threads(1, /*deterministic=*/false);
  const ChoicesGuard guard({.row_pitch = Use::always, .fused_attention = Use::always});
  for (const OperatorCase& tested : operator_cases()) {
    expect_like_reference(tested, at::kCPU, at::kFloat, 2e-5);
    expect_like_reference(tested, at::kCPU, at::kBFloat16, 2e-2);
  }
}

}  // namespace
}  // namespace transnormer::ops
