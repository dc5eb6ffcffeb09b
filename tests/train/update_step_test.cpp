#include "train/update_step.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>

#include "data/samples.h"
#include "model/attention/diag.h"
#include "model/weights.h"
#include "ops/runtime/device.h"
#include "optim/registry.h"
#include "task/causal.h"

namespace transnormer {
namespace {

constexpr std::int64_t kWords = 20;
constexpr std::int64_t kLength = 13;

// Tensors this small only lose time to a second thread.
std::shared_ptr<TransNormer> make_model(double dropout) {
  ops::configure_threads(1, /*deterministic=*/false);
  ModelConfig config;
  config.layers = 2;
  config.dim = 16;
  config.heads = 2;
  config.early = DiagAttentionConfig{.block = 8};
  config.dropout = dropout;
  config.attention_dropout = dropout;
  auto model = std::make_shared<TransNormer>(config, ModelSize{kWords, kLength}, at::kCPU);
  initialize(*model, 7);
  return model;
}

// Samples [first, first + count) of an endless text; the fifth one is short.
Batch make_batch(std::int64_t first, std::int64_t count) {
  std::vector<std::int64_t> inputs, targets;
  Batch batch{.first_position = first, .samples = count};
  for (std::int64_t sample = first; sample < first + count; ++sample) {
    for (std::int64_t i = 0; i < kLength; ++i) {
      const bool masked = sample == 4 && i > 2;
      inputs.push_back((sample * 7 + i * i) % kWords);
      targets.push_back(masked ? kIgnoredTarget : (sample * 7 + (i + 1) * (i + 1)) % kWords);
      batch.count += masked ? 0 : 1;
    }
  }
  batch.tensors = {{"inputs", at::tensor(inputs).view({count, kLength})},
                   {"targets", at::tensor(targets).view({count, kLength})}};
  return batch;
}

// Six samples, so many a pass.
std::vector<Batch> make_update(std::int64_t micro_batch_size) {
  std::vector<Batch> batches;
  for (std::int64_t first = 0; first < 6; first += micro_batch_size) {
    batches.push_back(make_batch(first, std::min<std::int64_t>(micro_batch_size, 6 - first)));
  }
  return batches;
}

// A model with all that an update of it takes.
struct Trained {
  explicit Trained(double dropout, UpdateStep::Options options = {.seed = 3})
      : model(make_model(dropout)),
        optimizer(make_optimizer(named_tensors(*model), {})),
        scaler(false),
        step(causal_loss, *model, *optimizer, scaler, dist::alone(), options) {}

  [[nodiscard]] std::vector<at::Tensor> gradients() const { return optimizer->gradients(); }

  std::shared_ptr<TransNormer> model;
  std::unique_ptr<Optimizer> optimizer;
  LossScaler scaler;
  UpdateStep step;
};

struct Result {
  double nll = 0;
  std::vector<at::Tensor> gradients;
};

Result run(const std::vector<Batch>& batches) {
  Trained trained(0.3);
  const auto measured = trained.step.measure(batches, 5);
  return {measured->sums.loss, trained.gradients()};
}

double relative_difference(const at::Tensor& a, const at::Tensor& b) {
  return ((a - b).norm() / b.norm().clamp_min(1e-12)).item<double>();
}

TEST(UpdateStep, MicroBatchesOfAnySizeGiveTheGradientOfOne) {
  const Result whole = run(make_update(6));
  for (const std::int64_t size : {1, 2, 4}) {
    const Result parts = run(make_update(size));
    EXPECT_NEAR(parts.nll, whole.nll, 1e-3);
    for (std::size_t i = 0; i < whole.gradients.size(); ++i) {
      EXPECT_LT(relative_difference(parts.gradients[i], whole.gradients[i]), 1e-5) << size;
    }
  }
}

TEST(UpdateStep, DropsWhatSeedUpdateAndGlobalSampleSay) {
  Trained trained(0.3);
  const std::vector<Batch> batches = make_update(4);
  ForwardContext context{.training = true, .seed = 3, .update = 5};
  double expected = 0;
  for (const Batch& batch : batches) {
    context.first_sample = batch.first_position;
    expected += causal_loss(*trained.model, batch.tensors, context, at::scalar_tensor(1.F))
                    .sums.item<double>();
  }
  EXPECT_EQ(trained.step.measure(batches, 5)->sums.loss, expected);
}

TEST(UpdateStep, TheLossIsDividedOnceByTheTargetsThatCount) {
  Trained trained(0.3);
  const auto measured = trained.step.measure(make_update(4), 5);
  constexpr std::int64_t kTargets = 5 * kLength + 3;
  EXPECT_EQ(measured->sums.count, kTargets);
  EXPECT_NEAR(measured->sums.loss / kTargets, std::log(kWords), 1.5);
  Trained alone(0.3);
  std::vector<at::Tensor> expected;
  for (const Batch& batch : make_update(1)) {
    (void)alone.step.measure({batch}, 5);
    const double share = static_cast<double>(batch.count) / kTargets;
    const std::vector<at::Tensor> gradients = alone.gradients();
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      const at::Tensor part = share * gradients[i];
      if (i < expected.size()) {
        expected[i] += part;
      } else {
        expected.push_back(part);
      }
    }
  }
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_LT(relative_difference(trained.gradients()[i], expected[i]), 1e-5) << i;
  }
}

TEST(UpdateStep, TheLossScaleLeavesLossNormAndGradientsAsTheyAre) {
  const Result plain = run(make_update(6));
  Trained scaled(0.3);
  scaled.scaler = LossScaler(true);
  scaled.scaler.restore(1024, 0);
  const auto measured = scaled.step.measure(make_update(6), 5);
  EXPECT_EQ(measured->sums.loss, plain.nll);
  const std::vector<at::Tensor> gradients = scaled.gradients();
  double squares = 0;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    EXPECT_LT(relative_difference(gradients[i], plain.gradients[i]), 1e-5) << i;
    squares += plain.gradients[i].to(at::kDouble).square().sum().item<double>();
  }
  EXPECT_NEAR(measured->grad_norm, std::sqrt(squares), 1e-5 * std::sqrt(squares));
}

TEST(UpdateStep, AnUpdateThatIsNotFiniteIsJudgedSoAndOneThatIsIsClippedAndApplied) {
  Trained trained(0, {.clip_norm = 1e-3});
  TrainingState state;
  auto measured = *trained.step.measure(make_update(6), 0);
  ASSERT_GT(measured.grad_norm, 1e-3);
  EXPECT_EQ(trained.step.judge(measured, {}, state).fate, UpdateFate::applied);
  const at::Tensor before = trained.model->parameters()[0].detach().clone();
  trained.step.apply(measured, 1e-2);
  double squares = 0;
  for (const at::Tensor& gradient : trained.gradients()) {
    squares += gradient.to(at::kDouble).square().sum().item<double>();
  }
  EXPECT_NEAR(std::sqrt(squares), 1e-3, 1e-6);
  EXPECT_FALSE(at::equal(trained.model->parameters()[0], before));
  measured.grad_norm = NAN;
  EXPECT_EQ(trained.step.judge(measured, {}, state).fate, UpdateFate::skipped);
  EXPECT_EQ(state.skipped_updates, 1);
}

// Before each micro-batch, each of two layers, the one slice of the loss, and each layer backward.
constexpr int kQuestionsAPass = 1 + 2 + 1 + 2;

TEST(UpdateStep, StopsBetweenMicroBatchesLayersAndSlicesForwardAndBackward) {
  for (const bool checkpointing : {false, true}) {
    for (int last = 1; last <= 3 * kQuestionsAPass + 1; ++last) {
      Trained trained(0.3, {.activation_checkpointing = checkpointing});
      int asked = 0;
      const auto measured =
          trained.step.measure(make_update(2), 0, [&] { return ++asked == last; });
      const bool is_whole = last > 3 * kQuestionsAPass;
      EXPECT_EQ(measured.has_value(), is_whole) << last;
      EXPECT_EQ(asked, is_whole ? last - 1 : last);
    }
  }
}

TEST(UpdateStep, AfterAStopTheSameUpdateGivesTheSameBits) {
  const Result whole = run(make_update(6));
  for (int last = 1; last <= kQuestionsAPass; ++last) {
    Trained trained(0.3);
    int asked = 0;
    ASSERT_FALSE(trained.step.measure(make_update(6), 5, [&] { return ++asked == last; }));
    EXPECT_EQ(trained.step.measure(make_update(6), 5)->sums.loss, whole.nll);
    const std::vector<at::Tensor> gradients = trained.gradients();
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      EXPECT_TRUE(at::equal(gradients[i], whole.gradients[i])) << last << ", " << i;
    }
  }
}

TEST(UpdateStep, ManyOverfitOneBatch) {
  for (const at::ScalarType compute : {at::kFloat, at::kBFloat16}) {
    Trained trained(0, {.compute = compute});
    const std::vector<Batch> batches{make_batch(0, 3)};
    double loss = 0;
    for (int update = 0; update < 120; ++update) {
      const auto measured = trained.step.measure(batches, update);
      loss = measured->sums.loss / static_cast<double>(measured->sums.count);
      trained.step.apply(*measured, 1e-2);
    }
    EXPECT_LT(loss, 0.1) << compute;
  }
}

}  // namespace
}  // namespace transnormer
