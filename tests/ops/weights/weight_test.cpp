#include "ops/weights/weight.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "ops/reference.h"
#include "ops/weights/linear.h"

namespace transnormer::ops {
namespace {

TEST(Weight, IsItsOwnOperandInSinglePrecision) {
  const at::Tensor value = leaf(normal({3, 4}, 1));
  EXPECT_TRUE(Weight(value).operand(at::kFloat).is_alias_of(value));
}

TEST(Weight, IsCopiedOnceUntilItChanges) {
  const at::Tensor value = leaf(normal({3, 4}, 1));
  const Weight weight(value);
  const at::Tensor first = weight.operand(at::kBFloat16);
  EXPECT_EQ(first.scalar_type(), at::kBFloat16);
  EXPECT_TRUE(weight.operand(at::kBFloat16).is_same(first));
  {
    const at::NoGradGuard no_gradients;
    value.mul_(2);
  }
  EXPECT_TRUE(at::equal(weight.operand(at::kBFloat16), value.detach().to(at::kBFloat16)));
  EXPECT_TRUE(weight.operand(at::kBFloat16).is_same(first));       // in the same memory
  EXPECT_EQ(weight.operand(at::kHalf).scalar_type(), at::kFloat);  // as a CPU multiplies it
}

// Two parameters of one memory.
struct Pair {
  at::Tensor joint = normal({5, 4}, 1);
  at::Tensor first = joint.narrow(0, 0, 2).detach().requires_grad_();
  at::Tensor second = joint.narrow(0, 2, 3).detach().requires_grad_();
  Weight weight{joint, {first, second}};
};

TEST(Weight, AChangeOfAPartIsAChangeOfTheWhole) {
  const Pair pair;
  (void)pair.weight.operand(at::kBFloat16);
  {
    const at::NoGradGuard no_gradients;
    pair.second.fill_(7);
  }
  EXPECT_TRUE(at::equal(pair.weight.operand(at::kBFloat16).slice(0, 2),
                        at::full({3, 4}, 7, at::kBFloat16)));
}

TEST(Weight, TheGradientsOfItsPartsLieInOneTensor) {
  const Pair pair;
  const at::Tensor x = leaf(normal({6, 4}, 2)), g = normal({6, 5}, 3);
  torch::autograd::backward({linear(x, pair.weight, {}, at::kFloat)}, {g});
  const at::Tensor expected = at::mm(g.t(), x.detach());
  EXPECT_LT(distance(pair.first.grad(), expected.slice(0, 0, 2)), 1e-6);
  EXPECT_LT(distance(pair.second.grad(), expected.slice(0, 2)), 1e-6);
  torch::autograd::backward({linear(x, pair.weight, {}, at::kFloat)}, {g});
  EXPECT_LT(distance(pair.weight.gradient(), 2 * expected), 1e-6);
  EXPECT_TRUE(pair.weight.gradient().is_alias_of(pair.second.grad()));
}

TEST(Weight, GradientsOfPartsThatLieApartAreRefused) {
  const Pair pair;
  pair.first.mutable_grad() = at::zeros({2, 4});
  pair.second.mutable_grad() = at::zeros({3, 4});
  EXPECT_THROW((void)pair.weight.gradient(), c10::Error);
}

}  // namespace
}  // namespace transnormer::ops
