// The whole model, its training and its states on CUDA against the CPU.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "data/samples.h"
#include "model/block.h"
#include "model/models.h"
#include "model/weights.h"
#include "ops/cuda_device.h"
#include "ops/runtime/device_memory.h"
#include "optim/gradients.h"
#include "optim/loss_scaler.h"
#include "optim/registry.h"
#include "task/causal.h"
#include "train/gradient_statistics.h"
#include "train/update_step.h"

namespace transnormer::test {
namespace {

std::shared_ptr<TransNormer> make_model_on(at::Device device, const ModelConfig& config) {
  auto model = std::make_shared<TransNormer>(
      config, ModelSize{.vocab_size = kWords, .max_positions = 64}, device);
  initialize(*model, 3);
  return model;
}

NamedGradients on_cpu(NamedGradients gradients) {
  for (auto& [name, gradient] : gradients) {
    gradient = gradient.to(at::kCPU);
  }
  return gradients;
}

ModelConfig with_dropout(ModelConfig config) {
  config.dropout = 0.2;
  config.attention_dropout = 0.1;
  return config;
}

// Two micro-batches of an update; the last targets are not there.
std::vector<Batch> make_update() {
  std::vector<Batch> batches;
  for (std::int64_t first = 0; first < 6; first += 3) {
    const at::Tensor targets = random_tokens(3, 19, first + 2);
    targets[2][18].fill_(kIgnoredTarget);
    batches.push_back(
        {.first_position = first,
         .samples = 3,
         .count = targets.numel() - 1,
         .tensors = {{"inputs", random_tokens(3, 19, first + 1)}, {"targets", targets}}});
  }
  return batches;
}

struct Trained {
  std::vector<double> losses;
  std::vector<double> norms;
  std::shared_ptr<TransNormer> model;
};

enum class Passes { launched, captured };

// As the training loop does: an update whose gradient is not finite is passed over.
Trained train_on(at::Device device, const ModelConfig& config, at::ScalarType compute,
                 int updates = 5, Passes passes = Passes::launched) {
  Trained trained;
  trained.model = make_model_on(device, config);
  const auto optimizer = make_optimizer(named_tensors(*trained.model), {});
  LossScaler scaler(compute == at::kHalf);
  UpdateStep step(
      causal_loss, *trained.model, *optimizer, scaler, dist::alone(),
      {.compute = compute, .seed = 5, .clip_norm = 0.5, .captures = passes == Passes::captured});
  TrainingState state;
  const std::vector<Batch> batches = make_update();
  for (int update = 0; update < updates; ++update) {
    const auto measured = step.measure(batches, update);
    trained.losses.push_back(measured->sums.loss);
    trained.norms.push_back(measured->grad_norm);
    if (step.judge(*measured, {}, state).fate == UpdateFate::applied) {
      step.apply(*measured, 1e-3);
    }
  }
  EXPECT_EQ(step.graph_fault(), "");
  return trained;
}

class CudaModel : public CudaTest {};

TEST_F(CudaModel, InitialWeightsAreEqualBitForBit) {
  for (const auto& [name, config] : many_configs()) {
    const auto here = named_tensors(*make_model_on(at::kCPU, config));
    const auto there = named_tensors(*make_model_on(device, config));
    ASSERT_EQ(here.size(), there.size());
    for (std::size_t i = 0; i < here.size(); ++i) {
      EXPECT_EQ(there[i].tensor.device(), device);
      EXPECT_TRUE(at::equal(there[i].tensor.to(at::kCPU), here[i].tensor))
          << name << ", " << here[i].name;
    }
  }
}

TEST_F(CudaModel, LossAndGradientsAgreeForEveryConfigWithDropout) {
  const at::Tensor tokens = random_tokens(3, 37, 2), targets = random_tokens(3, 37, 3);
  const ForwardContext context{.training = true, .seed = 11, .update = 5, .first_sample = 640};
  for (const auto& [name, plain] : many_configs()) {
    const ModelConfig config = with_dropout(plain);
    const auto here = make_model_on(at::kCPU, config);
    const double loss = accumulate_loss(*here, tokens, targets, context);
    for (const bool recompute : {false, true}) {
      const auto there = make_model_on(device, config);
      ForwardContext again = context;
      again.activation_checkpointing = recompute;
      EXPECT_NEAR(accumulate_loss(*there, tokens.to(device), targets.to(device), again), loss,
                  1e-5 * loss)
          << name;
      expect_close(on_cpu(gradients(*there)), gradients(*here), 1e-3,
                   name + (recompute ? ", recomputed" : ""));
    }
  }
}

TEST_F(CudaModel, LossAndGradientsInHalfPrecisionsAreClose) {
  const at::Tensor tokens = random_tokens(4, 37, 2), targets = random_tokens(4, 37, 3);
  for (const auto variant : {ModelVariant::t1, ModelVariant::t2, ModelVariant::transformer}) {
    const auto here = make_model_on(at::kCPU, small_config(variant));
    const double loss = accumulate_loss(*here, tokens, targets, {});
    for (const auto compute : {at::kBFloat16, at::kHalf}) {
      const auto there = make_model_on(device, small_config(variant));
      EXPECT_NEAR(
          accumulate_loss(*there, tokens.to(device), targets.to(device), {.compute = compute}),
          loss, 0.01 * loss);
      expect_close(on_cpu(gradients(*there)), gradients(*here), 0.2, c10::toString(compute));
    }
  }
}

TEST_F(CudaModel, ReadingInChunksAgreesWithTheCpu) {
  const at::NoGradGuard no_grad;
  const at::Tensor tokens = random_tokens(2, 30, 4);
  for (const auto& [name, config] : many_configs()) {
    const auto read = [&tokens](TransNormer& model) {
      ModelState state = model.make_state(2);
      std::vector<at::Tensor> parts;
      for (const auto& [first, count] : {std::pair{0, 11}, std::pair{11, 1}, std::pair{12, 18}}) {
        const at::Tensor part = tokens.narrow(1, first, count).to(model.device());
        parts.push_back(model.logits(model.forward(part, {}, &state), {}).to(at::kCPU));
      }
      return at::cat(parts, 1);
    };
    EXPECT_LT(relative_error(read(*make_model_on(device, config)),
                             read(*make_model_on(at::kCPU, config))),
              1e-4)
        << name;
  }
}

TEST_F(CudaModel, UpdatesAgreeWithTheCpu) {
  for (const auto variant : {ModelVariant::t1, ModelVariant::t2, ModelVariant::transformer}) {
    const ModelConfig config = with_dropout(small_config(variant));
    const Trained here = train_on(at::kCPU, config, at::kFloat);
    const Trained there = train_on(device, config, at::kFloat);
    const Trained half = train_on(device, config, at::kBFloat16);
    EXPECT_LT(here.losses.back(), here.losses.front());
    for (std::size_t i = 0; i < here.losses.size(); ++i) {
      EXPECT_NEAR(there.losses[i], here.losses[i], 1e-4 * here.losses[i]);
      EXPECT_NEAR(there.norms[i], here.norms[i], 1e-3 * here.norms[i]);
      EXPECT_NEAR(half.losses[i], here.losses[i], 0.01 * here.losses[i]);
    }
  }
}

TEST_F(CudaModel, UpdatesWithLossScaleFindTheirScaleAndLowerTheLoss) {
  for (const auto variant : {ModelVariant::t1, ModelVariant::t2, ModelVariant::transformer}) {
    const ModelConfig config = with_dropout(small_config(variant));
    const double loss = train_on(at::kCPU, config, at::kFloat, 1).losses.front();
    const Trained half = train_on(device, config, at::kHalf, 25);
    EXPECT_NEAR(half.losses.front(), loss, 0.01 * loss);
    EXPECT_TRUE(std::isfinite(half.norms.back()));
    EXPECT_LT(half.losses.back(), 0.99 * loss);
  }
}

// With dropout and several micro-batches; the first two updates are launched in any case.
TEST_F(CudaModel, ReplayedUpdatesAreEqualBitForBitToLaunchedOnes) {
  if (!ops::CudaGraph::possible(device)) {
    GTEST_SKIP() << "the program was built without kernels for the GPU";
  }
  ops::configure_threads(2, /*deterministic=*/true);
  for (const auto variant : {ModelVariant::t1, ModelVariant::t2}) {
    for (const auto compute : {at::kFloat, at::kBFloat16}) {
      const ModelConfig config = with_dropout(small_config(variant));
      const Trained launched = train_on(device, config, compute, 6);
      const Trained replayed = train_on(device, config, compute, 6, Passes::captured);
      EXPECT_EQ(launched.losses, replayed.losses);
      EXPECT_EQ(launched.norms, replayed.norms);
    }
  }
  ops::configure_threads(2, /*deterministic=*/false);
}

TEST_F(CudaModel, UpdatesAreEqualBitForBitWhereDeterministic) {
  ops::configure_threads(2, /*deterministic=*/true);
  for (const auto variant : {ModelVariant::t1, ModelVariant::t2, ModelVariant::transformer}) {
    for (const auto compute : {at::kFloat, at::kBFloat16}) {
      // Without dropout on its weights, softmax is the library's own.
      ModelConfig config = with_dropout(small_config(variant));
      config.attention_dropout = 0;
      const Trained once = train_on(device, config, compute);
      const Trained twice = train_on(device, config, compute);
      EXPECT_EQ(once.losses, twice.losses);
      const auto weights = named_tensors(*once.model), again = named_tensors(*twice.model);
      for (std::size_t i = 0; i < weights.size(); ++i) {
        EXPECT_TRUE(at::equal(weights[i].tensor, again[i].tensor)) << weights[i].name;
      }
    }
  }
  ops::configure_threads(2, /*deterministic=*/false);
}

TEST_F(CudaModel, GradientStatisticsAgreeAndMemoryIsCounted) {
  const at::Tensor tokens = random_tokens(3, 37, 2), targets = random_tokens(3, 37, 3);
  const auto measure = [&](at::Device where) {
    const auto model = make_model_on(where, small_config(ModelVariant::t2));
    const auto optimizer = make_optimizer(named_tensors(*model), {});
    accumulate_loss(*model, tokens.to(where), targets.to(where), {});
    std::map<std::string, RunningMoments> moments;
    const GradientStatistics statistics(optimizer->parameters(), parameter_groups(*model));
    EXPECT_GT(ops::used_memory_bytes(where), 0);
    EXPECT_FALSE(statistics.sample(optimizer->gradients(), 64).empty());
    return statistics.measure(optimizer->gradients(), gradient_norms(optimizer->gradients()),
                              moments);
  };
  const auto here = measure(at::kCPU), there = measure(device);
  ASSERT_EQ(here.size(), there.size());
  for (const auto& [name, expected] : here) {
    EXPECT_NEAR(there.at(name).norm, expected.norm, 1e-4 * expected.norm) << name;
    EXPECT_NEAR(there.at(name).zero_share, expected.zero_share, 1e-3) << name;
  }
}

}  // namespace
}  // namespace transnormer::test
