#include "ops/runtime/row_pitch.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "ops/activation.h"
#include "ops/reference.h"
#include "ops/runtime/operator_choices.h"
#include "ops/weights/linear.h"
#include "ops/weights/weight.h"

namespace transnormer::ops {
namespace {

constexpr auto kPadded = OperatorChoices{.row_pitch = Use::always};

TEST(RowPitch, IsAMultipleOfSixteenBytesForHalfPrecisionOnAGpuOnly) {
  const auto half = at::TensorOptions().dtype(at::kBFloat16);
  EXPECT_EQ(row_pitch(1365, half.device(at::kCUDA)), 1368);
  EXPECT_EQ(row_pitch(50265, half.device(at::kCUDA)), 50272);
  EXPECT_EQ(row_pitch(1368, half.device(at::kCUDA)), 1368);
  EXPECT_EQ(row_pitch(1365, half.dtype(at::kFloat).device(at::kCUDA)), 1365);
  EXPECT_EQ(row_pitch(1365, half.device(at::kCPU)), 1365);
}

TEST(RowPitch, FollowsTheChoiceOfTheEnvironment) {
  const auto half = at::TensorOptions().dtype(at::kBFloat16);
  {
    const ChoicesGuard guard({.row_pitch = Use::never});
    EXPECT_EQ(row_pitch(1365, half.device(at::kCUDA)), 1365);
  }
  const ChoicesGuard guard(kPadded);
  EXPECT_EQ(row_pitch(1365, half), 1368);
  EXPECT_EQ(row_pitch(1365, half.dtype(at::kFloat)), 1368);
  EXPECT_EQ(row_pitch(1366, half.dtype(at::kFloat)), 1368);
}

TEST(RowPitch, IsNoPartOfATensorsSizes) {
  const ChoicesGuard guard(kPadded);
  const at::Tensor x = empty_rows({3, 5, 13}, at::kBFloat16);
  EXPECT_EQ(x.sizes(), (std::vector<std::int64_t>{3, 5, 13}));
  EXPECT_EQ(x.strides(), (std::vector<std::int64_t>{80, 16, 1}));
}

TEST(EvenRows, AreReadWithoutACopyAndOthersCopied) {
  const at::Tensor wide = normal({3, 5, 16}, 1);
  const at::Tensor padded = wide.narrow(-1, 0, 13);
  EXPECT_TRUE(even_rows(padded).is_same(padded));
  EXPECT_EQ(row_stride_of(padded), 16);
  EXPECT_TRUE(even_rows(padded.narrow(0, 1, 1)).is_alias_of(padded));
  for (const at::Tensor& uneven : {padded.narrow(1, 0, 4), wide.transpose(1, 2), strided(wide),
                                   wide.expand({2, 3, 5, 16}), normal({16}, 1).expand({4, 16})}) {
    const at::Tensor even = even_rows(uneven);
    EXPECT_FALSE(even.is_alias_of(uneven));
    EXPECT_TRUE(at::equal(even, uneven));
    EXPECT_EQ(row_stride_of(even), uneven.size(-1));
  }
}

// The way through a GLU: rows of 26 and 13 elements, none of them a multiple of 16 bytes.
TEST(RowPitch, IsKeptFromProductToProduct) {
  const ChoicesGuard guard(kPadded);
  const at::Tensor x = normal({3, 5, 24}, 1).to(at::kBFloat16).requires_grad_();
  const Weight in(leaf(normal({26, 24}, 2))), out(leaf(normal({24, 13}, 3)));
  EXPECT_EQ(row_stride_of(out.operand(at::kBFloat16)), 16);
  const at::Tensor gate_up = linear(x, in, leaf(normal({26}, 4)), at::kBFloat16);
  EXPECT_EQ(row_stride_of(gate_up), 32);
  const at::Tensor kept = gated(gate_up.detach(), Activation::silu);
  EXPECT_EQ(row_stride_of(kept), 16);
  EXPECT_EQ(row_stride_of(gated_backward(kept, gate_up.detach(), Activation::silu)), 32);
}

}  // namespace
}  // namespace transnormer::ops
