#include "ops/activation.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "ops/reference.h"

namespace transnormer::ops {
namespace {

double act(double x, Activation activation) {
  switch (activation) {
    case Activation::silu:
      return x / (1 + std::exp(-x));
    case Activation::relu:
      return std::max(x, 0.0);
    case Activation::gelu:
      return x / 2 * (1 + std::erf(x / std::sqrt(2.0)));
    default:
      return x;
  }
}

class Activations : public testing::TestWithParam<Activation> {
 protected:
  at::Tensor gate = 4 * normal({5, 37}, 1);
  at::Tensor up = normal({5, 37}, 2);
  at::Tensor g = normal({5, 37}, 3);

  std::vector<double> product(const std::vector<double>& a, const std::vector<double>& b) const {
    std::vector<double> y(a.size());
    for (std::size_t i = 0; i < y.size(); ++i) {
      y[i] = act(a[i], GetParam()) * b[i];
    }
    return y;
  }
};

// Double has no kernel of ours, so that it goes by the tensor operations, which compute in single.
TEST_P(Activations, GatedAgreesWithItsDefinitionAndDifferencesByKernelAndByTensors) {
  const auto of_gate = [&](const auto& at) { return product(at, values(up)); };
  const auto of_up = [&](const auto& at) { return product(values(gate), at); };
  for (const auto type : {at::kFloat, at::kDouble}) {
    const at::Tensor a = leaf(gate.to(type)), b = leaf(up.to(type));
    const at::Tensor y = gated(strided(at::cat({a, b}, -1)), GetParam());
    ASSERT_EQ(y.scalar_type(), type);
    torch::autograd::backward({y}, {g.to(type)});
    EXPECT_LT(distance(y, product(values(gate), values(up))), 1e-6);
    EXPECT_LT(distance(a.grad(), gradient_of(of_gate, values(g), values(gate))), 2e-6);
    EXPECT_LT(distance(b.grad(), gradient_of(of_up, values(g), values(up))), 2e-6);
  }
}

TEST_P(Activations, GatedInBfloat16RoundsItsResultsOnly) {
  const at::Tensor a = leaf(gate.to(at::kBFloat16)), b = leaf(up.to(at::kBFloat16));
  const at::Tensor rounded_g = g.to(at::kBFloat16);
  const at::Tensor y = gated(at::cat({a, b}, -1), GetParam());
  ASSERT_EQ(y.scalar_type(), at::kBFloat16);
  torch::autograd::backward({y}, {rounded_g});
  EXPECT_LT(distance(y, product(values(a), values(b))), 0x1.01p-8);
  const auto of_gate = [&](const auto& at) { return product(at, values(b)); };
  EXPECT_LT(distance(a.grad(), gradient_of(of_gate, values(rounded_g), values(a))), 0x1.01p-8);
}

TEST_P(Activations, AloneAgreesWithItsDefinition) {
  const std::vector<double> ones(185, 1.0);
  EXPECT_LT(distance(activate(gate, GetParam()), product(values(gate), ones)), 1e-6);
}

INSTANTIATE_TEST_SUITE_P(All, Activations,
                         testing::Values(Activation::silu, Activation::relu, Activation::gelu,
                                         Activation::none));

double phi(double x, FeatureMap map) {
  switch (map) {
    case FeatureMap::elu1:
      return x > 0 ? x + 1 : std::exp(x);
    case FeatureMap::elu:
      return x > 0 ? x : std::exp(x) - 1;
    case FeatureMap::relu:
      return std::max(x, 0.0);
    case FeatureMap::silu:
      return x / (1 + std::exp(-x));
    case FeatureMap::exp:
      return std::exp(x);
  }
  return NAN;
}

class FeatureMaps : public testing::TestWithParam<FeatureMap> {};

TEST_P(FeatureMaps, AgreeWithTheirDefinitionAndDifferencesByKernelAndByTensors) {
  const auto phi_of = [](const std::vector<double>& at) {
    std::vector<double> y;
    for (const double x : at) {
      y.push_back(phi(x, GetParam()));
    }
    return y;
  };
  const at::Tensor x = 5 * normal({3, 41}, 1);
  const at::Tensor g = normal({3, 41}, 2);
  for (const auto type : {at::kFloat, at::kDouble}) {
    const at::Tensor a = leaf(x.to(type));
    const at::Tensor y = feature_map(strided(a), GetParam());
    torch::autograd::backward({y}, {g.to(type)});
    EXPECT_LT(distance(y, phi_of(values(x))), 1e-6);
    EXPECT_LT(distance(a.grad(), gradient_of(phi_of, values(g), values(x))), 2e-6);
  }
  const at::Tensor rounded = x.to(at::kBFloat16);
  EXPECT_LT(distance(feature_map(rounded, GetParam()), phi_of(values(rounded))), 0x1.01p-8);
}

INSTANTIATE_TEST_SUITE_P(All, FeatureMaps,
                         testing::Values(FeatureMap::elu1, FeatureMap::elu, FeatureMap::relu,
                                         FeatureMap::silu, FeatureMap::exp));

TEST(FeatureMapExtremes, StayFiniteAndExact) {
  const at::Tensor x = at::tensor({-1000.F, -100.F, -87.F, 0.F, 88.F, 1e30F});
  const at::Tensor y = feature_map(x, FeatureMap::elu1);
  const at::Tensor expected = at::where(x > 0, x + 1, x.to(at::kDouble).exp().to(at::kFloat));
  EXPECT_TRUE(at::allclose(y, expected, 1e-6, 1e-37));
  EXPECT_TRUE(at::isnan(feature_map(at::full({1}, NAN), FeatureMap::elu1)).item<bool>());
}

}  // namespace
}  // namespace transnormer::ops
