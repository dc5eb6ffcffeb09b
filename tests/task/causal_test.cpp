#include "task/causal.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "model/weights.h"
#include "task/counting_task.h"

namespace transnormer {
namespace {

// Masked rows would be read by dropout, by the layers and by the loss, if they were.
TEST(CausalTask, MaskedRowsAddNothingToLossOrGradients) {
  const auto task = test::counting_task(18, 4);  // the last of 5 samples has two targets
  ModelConfig config;
  config.layers = 2;
  config.dim = 16;
  config.heads = 2;
  config.dropout = 0.3;
  TransNormer model(config, {20, 4}, at::kCPU);
  initialize(model, 7);
  ForwardContext context;
  context.training = true;
  context.first_sample = 3;
  const auto run = [&](std::int64_t rows) {
    const Batch batch = task->make_batch(std::array<std::int64_t, 2>{1, 4}, 3, rows);
    EXPECT_EQ(batch.count, 6);
    model.zero_grad(/*set_to_none=*/true);
    const Loss loss = task->loss(model, batch.tensors, context, at::scalar_tensor(0.5));
    loss.scaled.backward();
    std::vector<at::Tensor> gradients;
    for (const at::Tensor& parameter : model.parameters()) {
      gradients.push_back(parameter.grad().clone());
    }
    return std::pair(loss.sums.item<double>(), gradients);
  };
  const auto [loss, gradients] = run(2);
  const auto [filled_loss, filled_gradients] = run(5);
  EXPECT_NEAR(filled_loss, loss, 1e-6 * loss);
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    EXPECT_TRUE(at::allclose(filled_gradients[i], gradients[i], 1e-5, 1e-7)) << i;
  }
}

TEST(CausalTask, PartsOfABatchHoldNeighbouringTokensAndCountTheirTargets) {
  const auto task = test::counting_task(18, 4);
  const Batch whole = task->make_batch(std::array<std::int64_t, 2>{1, 4}, 3, 3);
  EXPECT_TRUE(
      at::equal(task->part_of(whole, 0, 1).tensors.at("inputs"), whole.tensors.at("inputs")));
  std::int64_t count = 0;
  for (int part = 0; part < 2; ++part) {
    const Batch found = task->part_of(whole, part, 2);
    EXPECT_EQ(found.first_position, 3);
    EXPECT_EQ(found.samples, 2);
    for (const char* name : {"inputs", "targets"}) {
      EXPECT_TRUE(at::equal(found.tensors.at(name),
                            whole.tensors.at(name).slice(1, 2 * part, 2 * part + 2)));
      EXPECT_TRUE(found.tensors.at(name).is_contiguous());
    }
    EXPECT_EQ(found.count, part == 0 ? 4 : 2);
    count += found.count;
  }
  EXPECT_EQ(count, whole.count);
  EXPECT_THROW((void)task->part_of(whole, 0, 3), c10::Error);
}

TEST(CausalTask, ReportsMeanLossAndPerplexityAndTakesTheLowerLossForTheBetterOne) {
  const auto task = test::counting_task(18, 4);
  const Report report = task->report({.loss = 12, .count = 6});
  EXPECT_EQ(report.loss, 2);
  ASSERT_EQ(report.figures.size(), 1U);
  EXPECT_EQ(report.figures[0].first, "perplexity");
  EXPECT_DOUBLE_EQ(report.figures[0].second, std::exp(2.0));
  EXPECT_TRUE(task->is_better({.loss = 1}, {.loss = 2}));
  EXPECT_FALSE(task->is_better({.loss = 2}, {.loss = 2}));
}

}  // namespace
}  // namespace transnormer
