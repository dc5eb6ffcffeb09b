#include "model/flops.h"

#include <gtest/gtest.h>

#include "model/attention/diag.h"
#include "model/footprint.h"
#include "model/models.h"
#include "model/weights.h"

namespace transnormer::test {
namespace {

FlopsPerToken published(ModelVariant variant, std::int64_t length) {
  ModelConfig config = small_config(variant);
  config.layers = 6;
  config.dim = 512;
  config.heads = 8;
  if (variant == ModelVariant::t2) {
    config.early = DiagAttentionConfig{};
  }
  return flops_per_token(TransNormer(config, {.vocab_size = 267744}, at::kMeta), length);
}

TEST(Flops, AreCountedFromTheShapes) {
  const FlopsPerToken t2 = published(ModelVariant::t2, 512);
  EXPECT_EQ(t2.output, 2.0 * 267744 * 512);
  EXPECT_EQ(t2.layers, 6 * 2.0 * (4 * 512 * 512 + 3 * 512 * 1365));
  // Block layers: scores and sums over (64 + 1) / 2 tokens; linear ones: a 64 x 64 state a head,
  // brought up to date and read.
  EXPECT_EQ(t2.attention, 3 * 4.0 * 512 * 32.5 + 3 * 4.0 * 8 * 64 * 64);
  EXPECT_EQ(t2.train(), 3 * (t2.output + t2.layers + t2.attention));
}

TEST(Flops, OfATokenGrowWithTheLengthForSoftmaxOnly) {
  EXPECT_EQ(published(ModelVariant::t2, 512).forward(),
            published(ModelVariant::t2, 16384).forward());
  EXPECT_EQ(published(ModelVariant::transformer, 16383).attention,
            32 * published(ModelVariant::transformer, 511).attention);
}

TEST(Footprint, CountsSixteenBytesAParameterAndLessWithRecomputation) {
  const ModelConfig config;
  const ModelSize size{.vocab_size = 267744};
  PassShape pass{.sequences = 4, .length = 512};
  const MemoryEstimate kept = training_memory(config, size, {.state_slots = 2}, pass);
  EXPECT_NEAR(kept.weights + kept.gradients + kept.optimizer, 16.0 * 155988540, 16.0 * 10000);
  // Weights, frozen ones too, and the optimizer's numbers.
  EXPECT_EQ(kept.snapshot, kept.optimizer + kept.gradients + 4 * 6 * 64);  // as many as the weights
  pass.activation_checkpointing = true;
  EXPECT_LT(training_memory(config, size, {.state_slots = 2}, pass).activations,
            kept.activations / 2);
  pass = {.sequences = 8, .length = 512};
  EXPECT_EQ(training_memory(config, size, {.state_slots = 2}, pass).activations,
            2 * kept.activations);
}

TEST(Footprint, CountsHiddenMatricesApartAndAMeanOfTheWeights) {
  const ModelConfig config;
  const ModelSize size{.vocab_size = 1000};
  const PassShape pass{.sequences = 4, .length = 512};
  const TransNormer model(config, size, at::kMeta);
  double parameters = 0;
  double matrices = 0;
  for (const NamedTensor& named : named_tensors(model)) {
    const auto numbers = static_cast<double>(named.tensor.numel());
    parameters += named.trainable ? numbers : 0;
    const bool is_product =
        named.name.ends_with("_proj.weight");  // of attention and feed-forward part
    matrices += is_product ? numbers : 0;
  }
  ASSERT_GT(matrices, parameters / 2);
  const MemoryEstimate plain = training_memory(config, size, {.state_slots = 2}, pass);
  const MemoryEstimate apart =
      training_memory(config, size, {.state_slots = 2, .matrix_slots = 1}, pass);
  EXPECT_EQ(apart.optimizer, plain.optimizer - 4 * matrices);
  EXPECT_EQ(apart.snapshot, plain.snapshot - 4 * matrices);
  const MemoryEstimate mean =
      training_memory(config, size, {.state_slots = 2, .averages = true}, pass);
  EXPECT_EQ(mean.average, 4 * parameters);
  EXPECT_EQ(mean.total(), plain.total() + 4 * parameters);
  EXPECT_EQ(mean.snapshot, plain.snapshot + 4 * parameters);
}

}  // namespace
}  // namespace transnormer::test
