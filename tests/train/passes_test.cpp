#include "train/passes.h"

#include <gtest/gtest.h>

#include <cmath>

#include "model/attention/diag.h"
#include "ops/runtime/device.h"
#include "optim/registry.h"

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
  Batch batch;
  batch.samples = count;
  batch.length = kLength;
  batch.first_position = first;
  for (std::int64_t sample = first; sample < first + count; ++sample) {
    for (std::int64_t i = 0; i < kLength; ++i) {
      const bool masked = sample == 4 && i > 2;
      batch.inputs.push_back((sample * 7 + i * i) % kWords);
      batch.targets.push_back(masked ? kIgnoredTarget : (sample * 7 + (i + 1) * (i + 1)) % kWords);
      batch.target_tokens += masked ? 0 : 1;
    }
  }
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

struct Result {
  double nll = 0;
  std::vector<at::Tensor> gradients;
};

Result run(const std::vector<Batch>& batches, double loss_scale = 1) {
  const auto model = make_model(0.3);
  const auto optimizer = make_optimizer(named_tensors(*model), {});
  const auto nll =
      accumulate_gradients(*model, batches, {.seed = 3, .update = 5, .loss_scale = loss_scale});
  return {nll->item<double>(), optimizer->gradients()};
}

double relative_difference(const at::Tensor& a, const at::Tensor& b) {
  return ((a - b).norm() / b.norm().clamp_min(1e-12)).item<double>();
}

TEST(Passes, MicroBatchesOfAnySizeGiveTheGradientOfOne) {
  const Result whole = run(make_update(6));
  for (const std::int64_t size : {1, 2, 4}) {
    const Result parts = run(make_update(size));
    EXPECT_NEAR(parts.nll, whole.nll, 1e-3);
    for (std::size_t i = 0; i < whole.gradients.size(); ++i) {
      EXPECT_LT(relative_difference(parts.gradients[i], whole.gradients[i]), 1e-5) << size;
    }
  }
}

TEST(Passes, DropoutActsAndFollowsTheUpdate) {
  const auto nll = [](double dropout, std::int64_t update) {
    const auto model = make_model(dropout);
    return accumulate_gradients(*model, make_update(6), {.seed = 3, .update = update})
        ->item<double>();
  };
  EXPECT_EQ(nll(0.3, 5), nll(0.3, 5));
  EXPECT_NE(nll(0.3, 5), nll(0.3, 6));
  EXPECT_NE(nll(0.3, 5), nll(0, 5));
}

TEST(Passes, TheLossIsDividedByTheTargetsThatCount) {
  const Result result = run(make_update(4));
  EXPECT_EQ(target_tokens(make_update(4)), 5 * kLength + 3);
  EXPECT_NEAR(result.nll / (5 * kLength + 3), std::log(kWords), 1.5);
  const auto model = make_model(0.3);
  const auto optimizer = make_optimizer(named_tensors(*model), {});
  std::vector<at::Tensor> expected;
  for (const Batch& batch : make_update(1)) {
    optimizer->zero_gradients();
    (void)accumulate_gradients(*model, {batch}, {.seed = 3, .update = 5});
    const double share = static_cast<double>(batch.target_tokens) / (5 * kLength + 3);
    const std::vector<at::Tensor> gradients = optimizer->gradients();
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
    EXPECT_LT(relative_difference(result.gradients[i], expected[i]), 1e-5) << i;
  }
}

TEST(Passes, TheLossScaleMultipliesTheGradientsAndNotTheLoss) {
  const Result plain = run(make_update(6));
  const Result scaled = run(make_update(6), 1024);
  EXPECT_EQ(plain.nll, scaled.nll);
  for (std::size_t i = 0; i < plain.gradients.size(); ++i) {
    EXPECT_LT(relative_difference(scaled.gradients[i] / 1024, plain.gradients[i]), 1e-5);
  }
}

// Before each micro-batch, each of two layers, the one slice of the loss, and each layer backward.
constexpr int kQuestionsAPass = 1 + 2 + 1 + 2;

TEST(Passes, StopBetweenMicroBatchesLayersAndSlicesForwardAndBackward) {
  for (const bool checkpointing : {false, true}) {
    for (int last = 1; last <= 3 * kQuestionsAPass + 1; ++last) {
      const auto model = make_model(0.3);
      int asked = 0;
      const auto nll = accumulate_gradients(*model, make_update(2),
                                            {.activation_checkpointing = checkpointing,
                                             .should_stop = [&] { return ++asked == last; }});
      const bool is_whole = last > 3 * kQuestionsAPass;
      EXPECT_EQ(nll.has_value(), is_whole) << last;
      EXPECT_EQ(asked, is_whole ? last - 1 : last);
    }
  }
}

TEST(Passes, AfterAStopTheSameUpdateGivesTheSameBits) {
  const Result whole = run(make_update(6));
  for (int last = 1; last <= kQuestionsAPass; ++last) {
    const auto model = make_model(0.3);
    const auto optimizer = make_optimizer(named_tensors(*model), {});
    int asked = 0;
    ASSERT_FALSE(accumulate_gradients(
        *model, make_update(6),
        {.seed = 3, .update = 5, .should_stop = [&] { return ++asked == last; }}));
    optimizer->zero_gradients();
    const auto nll = accumulate_gradients(*model, make_update(6), {.seed = 3, .update = 5});
    EXPECT_EQ(nll->item<double>(), whole.nll);
    const std::vector<at::Tensor> gradients = optimizer->gradients();
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      EXPECT_TRUE(at::equal(gradients[i], whole.gradients[i])) << last << ", " << i;
    }
  }
}

TEST(Passes, ManyUpdatesOverfitOneBatch) {
  for (const at::ScalarType compute : {at::kFloat, at::kBFloat16}) {
    const auto model = make_model(0);
    const auto optimizer = make_optimizer(named_tensors(*model), {});
    const std::vector<Batch> batches{make_batch(0, 3)};
    double loss = 0;
    for (int update = 0; update < 120; ++update) {
      optimizer->zero_gradients();
      loss = accumulate_gradients(*model, batches, {.compute = compute})->item<double>() /
             static_cast<double>(target_tokens(batches));
      optimizer->step(1e-2);
    }
    EXPECT_LT(loss, 0.1) << compute;
  }
}

}  // namespace
}  // namespace transnormer
