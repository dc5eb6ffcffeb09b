#include "ops/weights/linear.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "ops/activation.h"
#include "ops/reference.h"

namespace transnormer::ops {
namespace {

struct Answers {
  std::vector<double> out, d_x, d_weight, d_bias;
};

Answers reference(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                  const at::Tensor& g) {
  const std::vector<double> a = values(x), w = values(weight), b = values(bias), d = values(g);
  const auto in = static_cast<std::size_t>(weight.size(1)),
             out = static_cast<std::size_t>(weight.size(0));
  Answers r{std::vector<double>(d.size()), std::vector<double>(a.size()),
            std::vector<double>(w.size()), std::vector<double>(b.size())};
  for (std::size_t row = 0; row < a.size() / in; ++row) {
    for (std::size_t o = 0; o < out; ++o) {
      r.out[row * out + o] = b[o];
      r.d_bias[o] += d[row * out + o];
      for (std::size_t i = 0; i < in; ++i) {
        r.out[row * out + o] += a[row * in + i] * w[o * in + i];
        r.d_x[row * in + i] += d[row * out + o] * w[o * in + i];
        r.d_weight[o * in + i] += d[row * out + o] * a[row * in + i];
      }
    }
  }
  return r;
}

class LinearIn : public testing::TestWithParam<std::pair<at::ScalarType, double>> {};

TEST_P(LinearIn, AgreesWithLoopsForwardAndBackward) {
  const auto [compute, tolerance] = GetParam();
  const at::Tensor x = leaf(normal({2, 9, 33}, 1)), weight = leaf(normal({17, 33}, 2)),
                   bias = leaf(normal({17}, 3)), g = normal({2, 9, 17}, 4).to(compute);
  const at::Tensor y = linear(x, weight, bias, compute);
  ASSERT_EQ(y.scalar_type(), compute);
  torch::autograd::backward({y}, {g});
  const Answers expected = reference(x, weight, bias, g);
  EXPECT_LT(distance(y, expected.out), tolerance);
  EXPECT_LT(distance(x.grad(), expected.d_x), tolerance);
  EXPECT_LT(distance(weight.grad(), expected.d_weight), tolerance);
  EXPECT_LT(distance(bias.grad(), expected.d_bias), tolerance);
  EXPECT_EQ(x.grad().scalar_type(), at::kFloat);
  EXPECT_EQ(weight.grad().scalar_type(), at::kFloat);
}

INSTANTIATE_TEST_SUITE_P(Types, LinearIn,
                         testing::Values(std::pair{at::kFloat, 1e-6},
                                         std::pair{at::kBFloat16, 8e-3},
                                         std::pair{at::kHalf, 1e-3}));

TEST(Linear, HalfOnTheCpuRoundsItsOperandsAndResultOnly) {
  const at::Tensor x = normal({4, 40}, 1), weight = normal({7, 40}, 2);
  const at::Tensor expected =
      at::linear(x.to(at::kHalf).to(at::kFloat), weight.to(at::kHalf).to(at::kFloat)).to(at::kHalf);
  EXPECT_TRUE(at::equal(linear(x, weight, {}, at::kHalf), expected));
}

TEST(Linear, AddsToTheGradientsThatParametersHaveAndHandsOthersOn) {
  const at::Tensor x = leaf(normal({700, 33}, 1)), g = normal({700, 17}, 4);
  for (const auto& [compute, tolerance] : {std::pair{at::kFloat, 1e-6}, {at::kBFloat16, 8e-3}}) {
    const at::Tensor weight = leaf(normal({17, 33}, 2)), bias = leaf(normal({17}, 3));
    const Answers expected = reference(x, weight, bias, g);
    for (int pass = 1; pass <= 2; ++pass) {
      torch::autograd::backward({linear(x, weight, bias, compute)}, {g.to(compute)});
      EXPECT_LT(distance(weight.grad() / pass, expected.d_weight), tolerance);
      EXPECT_LT(distance(bias.grad() / pass, expected.d_bias), tolerance);
    }
    const at::Tensor base = leaf(weight), base_bias = leaf(bias);
    torch::autograd::backward({linear(x, base * 1, base_bias * 1, compute)}, {g.to(compute)});
    EXPECT_LT(distance(base.grad(), expected.d_weight), tolerance);
    EXPECT_LT(distance(base_bias.grad(), expected.d_bias), tolerance);
  }
}

TEST_P(LinearIn, BehindAGateIsTheSameAsBothInTurn) {
  const at::ScalarType compute = GetParam().first;
  const at::Tensor gate_up = normal({2, 9, 66}, 1).to(compute), g = normal({2, 9, 17}, 4);
  for (const auto gate : {Activation::silu, Activation::gelu}) {
    const at::Tensor x = leaf(gate_up), weight = leaf(normal({17, 33}, 2)),
                     bias = leaf(normal({17}, 3));
    const at::Tensor x2 = leaf(gate_up), weight2 = leaf(weight), bias2 = leaf(bias);
    const at::Tensor y = gated_linear(x, gate, weight, bias, compute);
    const at::Tensor expected = linear(gated(x2, gate), weight2, bias2, compute);
    EXPECT_TRUE(at::equal(y, expected));
    torch::autograd::backward({y, expected}, {g.to(compute), g.to(compute)});
    EXPECT_TRUE(at::equal(x.grad(), x2.grad()));
    EXPECT_TRUE(at::equal(weight.grad(), weight2.grad()));
    EXPECT_TRUE(at::equal(bias.grad(), bias2.grad()));
  }
}

TEST(Linear, WorksWithoutABiasAndWithStrides) {
  const at::Tensor x = leaf(normal({3, 5, 8}, 1)), weight = leaf(normal({4, 8}, 2));
  const at::Tensor g = normal({3, 4, 5}, 3).transpose(1, 2);
  torch::autograd::backward({linear(strided(x), weight, {}, at::kFloat)}, {g});
  const Answers expected = reference(x, weight, at::zeros({4}), g);
  EXPECT_LT(distance(x.grad(), expected.d_x), 1e-6);
  EXPECT_LT(distance(weight.grad(), expected.d_weight), 1e-6);
}

}  // namespace
}  // namespace transnormer::ops
