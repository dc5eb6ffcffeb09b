#include "optim/lion.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "optim/plain_updates.h"
#include "optim/registry.h"

namespace transnormer::test {
namespace {

// Chen et al.'s rule for one number, in double precision.
struct PlainLion {
  double beta1, beta2, weight_decay;
  double value;
  double momentum = 0;

  void step(double gradient, double lr) {
    const double mixed = beta1 * momentum + (1 - beta1) * gradient;
    const double sign = mixed > 0 ? 1 : (mixed < 0 ? -1 : 0);
    value -= lr * (sign + weight_decay * value);
    momentum = beta2 * momentum + (1 - beta2) * gradient;
  }
};

OptimizerConfig lion(double weight_decay, LionConfig settings = {}) {
  OptimizerConfig config;
  config.rule = settings;
  config.weight_decay = weight_decay;
  return config;
}

void expect_plain(const OptimizerConfig& config, at::IntArrayRef sizes) {
  const auto [beta1, beta2] = config.rule.get<LionConfig>().betas;
  const NamedTensor weight = parameter("w", start_of(sizes));
  const std::vector<double> start = numbers_of(weight.tensor);
  const auto optimizer = make_optimizer({weight}, config);
  for (int update = 0; update < 50; ++update) {
    set_gradient(weight, update);
    optimizer->step(rate(update));
  }
  const std::vector<double> values = numbers_of(weight.tensor);
  const std::vector<double> momenta = numbers_of(optimizer->named_state()[0].tensor);
  for (std::size_t i = 0; i < start.size(); ++i) {
    PlainLion plain{beta1, beta2, config.weight_decay, start[i]};
    for (int update = 0; update < 50; ++update) {
      plain.step(static_cast<float>(chirp(update, static_cast<int>(i))), rate(update));
    }
    ASSERT_NEAR(values[i], plain.value, 1e-6) << i;
    ASSERT_NEAR(momenta[i], plain.momentum, 1e-6) << i;
  }
}

TEST(Lion, AgreesWithADoublePrecisionLoopOverManyUpdates) {
  expect_plain(lion(0.1), {5, 7});
  expect_plain(lion(0), {1});
  expect_plain(lion(0.3, {.betas = {0.6, 0.8}}), {3, 1, 5});
}

// More than it goes through at once, with a rest.
TEST(Lion, AgreesWithThatLoopOnEachElementOfALongTensor) {
  const NamedTensor weight = parameter("w", at::linspace(-1, 1, 40'001));
  const at::Tensor start = weight.tensor.detach().clone();
  const auto optimizer = make_optimizer({weight}, lion(0.1));
  const at::Tensor gradient = at::sin(at::arange(40'001, at::kFloat));
  for (int update = 0; update < 2; ++update) {
    weight.tensor.mutable_grad().copy_(update == 0 ? gradient : -20 * gradient);
    optimizer->step(0.01);
  }
  const std::vector<double> values = numbers_of(weight.tensor);
  const std::vector<double> starts = numbers_of(start);
  const std::vector<double> gradients = numbers_of(gradient);
  for (std::size_t i = 0; i < values.size(); ++i) {
    PlainLion plain{0.9, 0.99, 0.1, starts[i]};
    plain.step(gradients[i], 0.01);
    plain.step(-20 * gradients[i], 0.01);
    ASSERT_NEAR(values[i], plain.value, 1e-6) << i;
  }
}

TEST(Lion, LeavesAParameterWithoutGradientToItsDecayAlone) {
  const NamedTensor weight = parameter("w", at::full({3}, 2.0));
  const auto optimizer = make_optimizer({weight}, lion(0.5));
  optimizer->step(0.1);
  EXPECT_NEAR(weight.tensor[0].item<double>(), 2.0 * (1 - 0.1 * 0.5), 1e-6);
}

TEST(Lion, KeepsOneMomentumForEachParameter) {
  const auto optimizer = make_optimizer(
      {parameter("layers.0.a.weight", at::ones({2, 2})), parameter("a", at::ones({3}))}, lion(0));
  const std::vector<NamedTensor> state = optimizer->named_state();
  ASSERT_EQ(state.size(), 2U);
  EXPECT_EQ(state[0].name, "layers.0.a.weight.exp_avg");
  EXPECT_EQ(state[1].name, "a.exp_avg");
  EXPECT_EQ(optimizer->state_bytes(), 4 * 7);
}

}  // namespace
}  // namespace transnormer::test
