#include "ops/norm.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "ops/reference.h"

namespace transnormer::ops {
namespace {

constexpr double kEps = 1e-3;

using Rows = std::vector<double>;

Rows rms_rows(const Rows& x, const Rows& gain) {
  Rows y(x.size());
  const std::size_t dim = gain.size();
  for (std::size_t row = 0; row < x.size(); row += dim) {
    double squares = 0;
    for (std::size_t i = 0; i < dim; ++i) {
      squares += x[row + i] * x[row + i];
    }
    for (std::size_t i = 0; i < dim; ++i) {
      y[row + i] = gain[i] * x[row + i] / std::sqrt(squares / static_cast<double>(dim) + kEps);
    }
  }
  return y;
}

Rows layer_rows(const Rows& x, const Rows& gain, const Rows& bias) {
  Rows centred = x;
  const std::size_t dim = gain.size();
  for (std::size_t row = 0; row < x.size(); row += dim) {
    double mean = 0;
    for (std::size_t i = 0; i < dim; ++i) {
      mean += x[row + i] / static_cast<double>(dim);
    }
    for (std::size_t i = 0; i < dim; ++i) {
      centred[row + i] -= mean;
    }
  }
  Rows y = rms_rows(centred, gain);
  for (std::size_t i = 0; i < y.size(); ++i) {
    y[i] += bias[i % dim];
  }
  return y;
}

class Norm : public testing::TestWithParam<std::int64_t> {
 protected:
  std::int64_t dim = GetParam();
  at::Tensor x = normal({2, 3, dim}, 1);
  at::Tensor gain = normal({dim}, 2);
  at::Tensor bias = normal({dim}, 3);
  at::Tensor g = normal({2, 3, dim}, 4);
};

// Double has no kernel of ours, so that it goes by the tensor operations, which compute in single.
TEST_P(Norm, SimpleRmsAgreesWithItsDefinitionAndDifferencesByKernelAndByTensors) {
  const Rows ones(static_cast<std::size_t>(dim), 1.0);
  const auto f = [&](const Rows& at) { return rms_rows(at, ones); };
  for (const auto type : {at::kFloat, at::kDouble}) {
    const at::Tensor a = leaf(x.to(type));
    const at::Tensor y = srms_norm(strided(a), kEps, type);
    ASSERT_EQ(y.scalar_type(), type);
    torch::autograd::backward({y}, {g.to(type)});
    EXPECT_LT(distance(y, rms_rows(values(x), ones)), 1e-6);
    EXPECT_LT(distance(a.grad(), gradient_of(f, values(g), values(x))), 2e-6);
  }
}

TEST_P(Norm, RmsAgreesWithItsDefinitionAndDifferences) {
  const at::Tensor a = leaf(x), b = leaf(gain);
  const at::Tensor y = rms_norm(a, b, kEps, at::kFloat);
  torch::autograd::backward({y}, {g});
  EXPECT_LT(distance(y, rms_rows(values(x), values(gain))), 1e-6);
  const auto of_x = [&](const Rows& at) { return rms_rows(at, values(gain)); };
  const auto of_gain = [&](const Rows& at) { return rms_rows(values(x), at); };
  EXPECT_LT(distance(a.grad(), gradient_of(of_x, values(g), values(x))), 2e-6);
  EXPECT_LT(distance(b.grad(), gradient_of(of_gain, values(g), values(gain))), 2e-6);
}

TEST_P(Norm, LayerAgreesWithItsDefinitionAndDifferences) {
  const at::Tensor a = leaf(x), b = leaf(gain), c = leaf(bias);
  const at::Tensor y = layer_norm(a, b, c, kEps, at::kFloat);
  torch::autograd::backward({y}, {g});
  EXPECT_LT(distance(y, layer_rows(values(x), values(gain), values(bias))), 2e-6);
  const auto of_x = [&](const Rows& at) { return layer_rows(at, values(gain), values(bias)); };
  const auto of_gain = [&](const Rows& at) { return layer_rows(values(x), at, values(bias)); };
  const auto of_bias = [&](const Rows& at) { return layer_rows(values(x), values(gain), at); };
  EXPECT_LT(distance(a.grad(), gradient_of(of_x, values(g), values(x))), 5e-6);
  EXPECT_LT(distance(b.grad(), gradient_of(of_gain, values(g), values(gain))), 2e-6);
  EXPECT_LT(distance(c.grad(), gradient_of(of_bias, values(g), values(bias))), 2e-6);
}

TEST_P(Norm, HalfPrecisionsRoundTheResultOnly) {
  const Rows ones(static_cast<std::size_t>(dim), 1.0);
  for (const auto& [type, unit] :
       {std::pair{at::kBFloat16, 0x1p-8}, std::pair{at::kHalf, 0x1p-11}}) {
    const at::Tensor a = leaf(x.to(type));
    const at::Tensor rounded_g = g.to(type);
    const at::Tensor y = srms_norm(a, kEps, type);
    ASSERT_EQ(y.scalar_type(), type);
    torch::autograd::backward({y}, {rounded_g});
    EXPECT_LT(distance(y, rms_rows(values(a), ones)), unit);
    const auto f = [&](const Rows& at) { return rms_rows(at, ones); };
    EXPECT_LT(distance(a.grad(), gradient_of(f, values(rounded_g), values(a))), unit);
    EXPECT_LT(distance(srms_norm(a, kEps, at::kFloat), rms_rows(values(a), ones)), 1e-6);
  }
}

INSTANTIATE_TEST_SUITE_P(Widths, Norm, testing::Values(3, 16, 37, 64));

TEST(NormOfZeros, IsZeroInEveryType) {
  for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const at::Tensor zeros = at::zeros({2, 20}, type);
    EXPECT_EQ(srms_norm(zeros, 1e-6, type).abs().max().item<double>(), 0);
  }
}

}  // namespace
}  // namespace transnormer::ops
