// AdamW, and what every optimizer does for its rule, by its example.
#include "optim/adamw.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "optim/registry.h"

namespace transnormer {
namespace {

// Loshchilov and Hutter's AdamW for one number, in double precision.
struct ReferenceAdamW {
  double beta1, beta2, eps, weight_decay;
  double value = 0, m = 0, v = 0;
  int updates = 0;

  void step(double gradient, double lr) {
    ++updates;
    value -= lr * weight_decay * value;
    m = beta1 * m + (1 - beta1) * gradient;
    v = beta2 * v + (1 - beta2) * gradient * gradient;
    const double m_hat = m / (1 - std::pow(beta1, updates));
    const double v_hat = v / (1 - std::pow(beta2, updates));
    value -= lr * m_hat / (std::sqrt(v_hat) + eps);
  }
};

NamedTensor parameter(const std::string& name, at::Tensor value) {
  return {name, value.set_requires_grad(true), true};
}

double gradient_at(int update, int element) {
  return std::sin(update * 1.7 + element * 0.37);
}

void set_gradients(const NamedTensor& parameter, int update) {
  at::Tensor gradient = parameter.tensor.grad().view({-1});
  for (int i = 0; i < gradient.numel(); ++i) {
    gradient[i] = gradient_at(update, i);
  }
}

double rate(int update) {
  return 1e-2 / (1 + update);
}

TEST(AdamW, AgreesWithADoublePrecisionComputationOverManyUpdates) {
  OptimizerConfig config;
  config.weight_decay = 0.1;
  const NamedTensor weight = parameter("w", at::linspace(-1, 1, 35).view({5, 7}));
  const at::Tensor start = weight.tensor.detach().clone().view({-1});
  const auto optimizer = make_optimizer({weight}, config);
  for (int update = 0; update < 50; ++update) {
    set_gradients(weight, update);
    optimizer->step(rate(update));
  }
  const at::Tensor result = weight.tensor.detach().view({-1});
  for (int i = 0; i < 35; ++i) {
    ReferenceAdamW reference{0.9, 0.98, 1e-8, 0.1, start[i].item<double>()};
    for (int update = 0; update < 50; ++update) {
      reference.step(static_cast<float>(gradient_at(update, i)), rate(update));
    }
    EXPECT_NEAR(result[i].item<double>(), reference.value, 2e-6) << i;
  }
  EXPECT_EQ(optimizer->updates(), 50);
}

TEST(AdamW, AddsEpsilonAfterTheBiasCorrection) {
  OptimizerConfig config;
  config.rule = AdamWConfig{.eps = 0.5};
  config.weight_decay = 0;
  const NamedTensor weight = parameter("w", at::zeros({1}));
  const auto optimizer = make_optimizer({weight}, config);
  weight.tensor.mutable_grad().fill_(0.25);
  optimizer->step(1);
  EXPECT_NEAR(weight.tensor.item<double>(), -0.25 / (0.25 + 0.5), 1e-6);
}

TEST(AdamW, DecaysAWeightWithoutGradientByItsRateAlone) {
  OptimizerConfig config;
  config.weight_decay = 0.5;
  const NamedTensor weight = parameter("w", at::full({3}, 2.0));
  const auto optimizer = make_optimizer({weight}, config);
  optimizer->step(0.1);
  EXPECT_NEAR(weight.tensor[0].item<double>(), 2.0 * (1 - 0.1 * 0.5), 1e-6);
}

TEST(AdamW, LeavesFrozenTensorsAlone) {
  const NamedTensor weight = parameter("w", at::ones({2}));
  const NamedTensor frozen{"u", at::ones({2}), false};
  const auto optimizer = make_optimizer({frozen, weight}, {});
  optimizer->step(0.1);
  EXPECT_TRUE(at::equal(frozen.tensor, at::ones({2})));
  ASSERT_EQ(optimizer->parameters().size(), 1U);
  EXPECT_EQ(optimizer->parameters()[0].name, "w");
}

TEST(AdamW, NamesItsStateAfterTheParametersInTheirOrder) {
  const auto optimizer =
      make_optimizer({parameter("b", at::ones({2})), parameter("a", at::ones({3}))}, {});
  const std::vector<NamedTensor> state = optimizer->named_state();
  ASSERT_EQ(state.size(), 4U);
  EXPECT_EQ(state[0].name, "b.exp_avg");
  EXPECT_EQ(state[1].name, "b.exp_avg_sq");
  EXPECT_EQ(state[2].name, "a.exp_avg");
  EXPECT_EQ(state[3].name, "a.exp_avg_sq");
  EXPECT_EQ(state[3].tensor.sizes(), at::IntArrayRef({3}));
}

TEST(AdamW, GoesOnFromCopiedStateWithTheSameBits) {
  const NamedTensor first = parameter("w", at::linspace(-1, 1, 100));
  const auto continuous = make_optimizer({first}, {});
  for (int update = 0; update < 3; ++update) {
    set_gradients(first, update);
    continuous->step(rate(update));
  }
  const NamedTensor second = parameter("w", first.tensor.detach().clone());
  const auto resumed = make_optimizer({second}, {});
  for (std::size_t i = 0; i < 2; ++i) {
    resumed->named_state()[i].tensor.copy_(continuous->named_state()[i].tensor);
  }
  resumed->set_updates(continuous->updates());
  for (int update = 3; update < 6; ++update) {
    set_gradients(first, update);
    continuous->step(rate(update));
    set_gradients(second, update);
    resumed->step(rate(update));
  }
  EXPECT_TRUE(at::equal(first.tensor, second.tensor));
}

TEST(AdamW, ZeroingGradientsKeepsTheirMemory) {
  const NamedTensor weight = parameter("w", at::ones({4}));
  const auto optimizer = make_optimizer({weight}, {});
  const void* memory = weight.tensor.grad().data_ptr();
  (weight.tensor * 3).sum().backward();
  EXPECT_EQ(weight.tensor.grad()[0].item<double>(), 3);
  optimizer->zero_gradients();
  EXPECT_EQ(weight.tensor.grad()[0].item<double>(), 0);
  EXPECT_EQ(weight.tensor.grad().data_ptr(), memory);
}

// Parameters that share memory, as projections of one input do, with one between that does not, at
// sizes that leave gaps.
TEST(AdamW, ParametersSideBySideInMemoryAreUpdatedAsIfTheyWereApart) {
  const at::Tensor joint = at::linspace(-1, 1, 30);
  const NamedTensor a = parameter("a", joint.narrow(0, 0, 12).view({3, 4}).detach());
  const NamedTensor alone = parameter("alone", at::linspace(0, 1, 7));
  const NamedTensor b = parameter("b", joint.narrow(0, 12, 18).view({6, 3}).detach());
  const NamedTensor apart_a = parameter("a", a.tensor.detach().clone());
  const NamedTensor apart_b = parameter("b", b.tensor.detach().clone());
  const auto together = make_optimizer({a, alone, b}, {});
  const auto apart = make_optimizer({apart_a, apart_b}, {});
  for (int update = 0; update < 3; ++update) {
    const auto version = joint._version();
    for (const NamedTensor& p : {a, b, apart_a, apart_b}) {
      set_gradients(p, update + static_cast<int>(p.name == "b"));
    }
    together->step(rate(update));
    apart->step(rate(update));
    EXPECT_GT(joint._version(), version);  // copies of it know that they are old
  }
  EXPECT_TRUE(at::allclose(a.tensor, apart_a.tensor, 1e-6, 0));
  EXPECT_TRUE(at::allclose(b.tensor, apart_b.tensor, 1e-6, 0));
  const std::vector<NamedTensor> state = together->named_state(), expected = apart->named_state();
  EXPECT_EQ(state[5].name, "b.exp_avg_sq");
  EXPECT_EQ(state[5].tensor.sizes(), b.tensor.sizes());
  EXPECT_TRUE(at::allclose(state[5].tensor, expected[3].tensor, 1e-6, 0));
  together->zero_gradients();
  EXPECT_EQ(b.tensor.grad().abs().sum().item<double>(), 0);
}

}  // namespace
}  // namespace transnormer
