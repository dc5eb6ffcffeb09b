// What training asks of the model: dropout that does not depend on how an update is cut, and
// recomputation that changes nothing.
#include <gtest/gtest.h>

#include <cmath>
#include <unordered_set>

#include "model/models.h"

namespace transnormer::test {
namespace {

ForwardContext training_context() {
  return {.training = true, .seed = 11, .update = 5, .first_sample = 640};
}

ModelConfig with_dropout(ModelConfig config) {
  config.dropout = 0.2;
  config.attention_dropout = 0.1;
  return config;
}

TEST(Training, DropoutIsTheSameHoweverAnUpdateIsCut) {
  const at::Tensor tokens = random_tokens(6, 19, 2);
  const at::Tensor targets = random_tokens(6, 19, 3);
  for (const auto& [name, config] : many_configs()) {
    const auto whole = make_model(with_dropout(config));
    const auto cut = make_model(with_dropout(config));
    const double loss = accumulate_loss(*whole, tokens, targets, training_context());
    double loss_of_parts = 0;
    for (std::int64_t first = 0; first < 6; first += 2) {
      ForwardContext context = training_context();
      context.first_sample += first;
      loss_of_parts +=
          accumulate_loss(*cut, tokens.narrow(0, first, 2), targets.narrow(0, first, 2), context);
    }
    EXPECT_NEAR(loss_of_parts, loss, 1e-5 * loss) << name;
    expect_close(gradients(*cut), gradients(*whole), 1e-4, name);
  }
}

TEST(Training, DropoutChangesWithUpdateSampleAndSeedOnlyInTraining) {
  const auto model = make_model(with_dropout(small_config(ModelVariant::t2)));
  const at::Tensor tokens = random_tokens(2, 19);
  at::NoGradGuard no_grad;
  const at::Tensor plain = model->forward(tokens, {});
  const at::Tensor dropped = model->forward(tokens, training_context());
  EXPECT_TRUE(at::equal(model->forward(tokens, training_context()), dropped));
  EXPECT_FALSE(at::equal(plain, dropped));
  const auto differs = [&](const std::function<void(ForwardContext&)>& change) {
    ForwardContext context = training_context();
    change(context);
    return !at::equal(model->forward(tokens, context), dropped);
  };
  EXPECT_TRUE(differs([](ForwardContext& c) { ++c.update; }));
  EXPECT_TRUE(differs([](ForwardContext& c) { ++c.first_sample; }));
  EXPECT_TRUE(differs([](ForwardContext& c) { ++c.seed; }));
}

TEST(Training, RecomputationChangesNoBitOfLossAndGradients) {
  const at::Tensor tokens = random_tokens(3, 21, 2);
  const at::Tensor targets = random_tokens(3, 21, 3);
  for (const auto& [name, config] : many_configs()) {
    const auto kept = make_model(with_dropout(config));
    const auto again = make_model(with_dropout(config));
    ForwardContext context = training_context();
    const double loss = accumulate_loss(*kept, tokens, targets, context);
    context.activation_checkpointing = true;
    EXPECT_EQ(accumulate_loss(*again, tokens, targets, context), loss) << name;
    const auto expected = gradients(*kept);
    const auto actual = gradients(*again);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      ASSERT_TRUE(actual[i].second.defined()) << name << ", " << expected[i].first;
      EXPECT_TRUE(at::equal(actual[i].second, expected[i].second))
          << name << ", " << expected[i].first << ": "
          << relative_error(actual[i].second, expected[i].second);
    }
  }
}

TEST(Training, RecomputationKeepsOnlyTheStreamBetweenLayers) {
  // The graph holds a node for each parameter and for each layer, and a few around them.
  ModelConfig config = small_config(ModelVariant::t2);
  config.dropout = 0;
  const auto nodes = [&](bool recompute) {
    const auto model = make_model(config);
    const at::Tensor y =
        model->forward(random_tokens(1, 9), {.activation_checkpointing = recompute});
    std::unordered_set<torch::autograd::Node*> seen;
    std::vector<torch::autograd::Node*> open{y.grad_fn().get()};
    while (!open.empty()) {
      auto* node = open.back();
      open.pop_back();
      if (node == nullptr || !seen.insert(node).second) {
        continue;
      }
      for (const auto& edge : node->next_edges()) {
        open.push_back(edge.function.get());
      }
    }
    return seen.size() - model->parameters().size();
  };
  EXPECT_LE(nodes(true), 3U + 8U);
  EXPECT_GT(nodes(false), nodes(true) + 15U);
}

TEST(Training, EveryTrainableTensorGetsAGradient) {
  for (const auto& [name, config] : many_configs()) {
    const auto model = make_model(config);
    accumulate_loss(*model, random_tokens(2, 19), random_tokens(2, 19, 4), training_context());
    for (const auto& [tensor, gradient] : gradients(*model)) {
      ASSERT_TRUE(gradient.defined()) << name << ", " << tensor;
      EXPECT_TRUE(std::isfinite(gradient.sum().item<double>())) << name << ", " << tensor;
      EXPECT_GT(gradient.abs().max().item<double>(), 0) << name << ", " << tensor;
    }
  }
}

TEST(Training, GradientsInBfloat16AreClose) {
  const at::Tensor tokens = random_tokens(4, 37, 2);
  const at::Tensor targets = random_tokens(4, 37, 3);
  for (const auto variant : {ModelVariant::t1, ModelVariant::t2, ModelVariant::transformer}) {
    const auto exact = make_model(small_config(variant));
    const auto brain = make_model(small_config(variant));
    const double loss = accumulate_loss(*exact, tokens, targets, {});
    EXPECT_NEAR(accumulate_loss(*brain, tokens, targets, {.compute = at::kBFloat16}), loss,
                0.01 * loss);
    const NamedGradients actual = gradients(*brain);
    for (const auto& [name, gradient] : actual) {
      EXPECT_EQ(gradient.scalar_type(), at::kFloat) << name;
    }
    expect_close(actual, gradients(*exact), 0.2, "bf16");
  }
}

}  // namespace
}  // namespace transnormer::test
