// What holds for the whole model, whatever its parts.
#include "model/transnormer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/models.h"
#include "model/weights.h"
#include "util/error.h"

namespace transnormer::test {
namespace {

using testing::HasSubstr;

at::Tensor outputs(TransNormer& model, const at::Tensor& tokens, ModelState* state = nullptr) {
  at::NoGradGuard no_grad;
  return model.forward(tokens, {}, state);
}

TEST(TransNormer, NeverLetsTheFutureChangeThePast) {
  for (const auto& [name, config] : many_configs()) {
    const auto model = make_model(config);
    const at::Tensor tokens = random_tokens(2, 29);
    const at::Tensor before = outputs(*model, tokens);
    // Inside the first block, at block starts, inside the last block, and the last token.
    for (const std::int64_t changed : {3, 8, 21, 28}) {
      at::Tensor other = tokens.clone();
      other.select(1, changed).add_(1).remainder_(kWords);
      const at::Tensor after = outputs(*model, other);
      const at::Tensor difference = (after - before).abs().amax(at::IntArrayRef{0, 2});
      EXPECT_LT(difference.narrow(0, 0, changed).max().item<double>(), 1e-6)
          << name << ", token " << changed;
      EXPECT_GT(difference[changed].item<double>(), 1e-3) << name << ", token " << changed;
    }
  }
}

TEST(TransNormer, GivesTheSameWholeInChunksAndTokenByToken) {
  const std::int64_t time = 37;
  const at::Tensor tokens = random_tokens(2, time);
  const std::vector<std::vector<std::int64_t>> cuts{
      {37}, {5, 1, 2, 8, 16, 5}, {3, 21, 13}, std::vector<std::int64_t>(time, 1)};
  for (const auto& [name, config] : many_configs()) {
    const auto model = make_model(config);
    const at::Tensor whole = outputs(*model, tokens);
    for (const auto& cut : cuts) {
      ModelState state = model->make_state(2);
      std::vector<at::Tensor> pieces;
      for (const std::int64_t count : cut) {
        pieces.push_back(outputs(*model, tokens.narrow(1, state.position, count), &state).clone());
      }
      EXPECT_EQ(state.position, time);
      EXPECT_LT(relative_error(at::cat(pieces, 1), whole), 2e-5)
          << name << " in " << cut.size() << " pieces";
    }
  }
}

TEST(TransNormer, AnswersForEveryShortLength) {
  for (const auto variant : {ModelVariant::t1, ModelVariant::t2, ModelVariant::transformer}) {
    const auto model = make_model(small_config(variant));
    const at::Tensor whole = outputs(*model, random_tokens(1, 20));
    for (std::int64_t time = 1; time <= 20; ++time) {
      const at::Tensor part = outputs(*model, random_tokens(1, 20).narrow(1, 0, time));
      EXPECT_LT(relative_error(part, whole.narrow(1, 0, time)), 1e-5) << time;
    }
  }
}

TEST(TransNormer, DecodesWithAStateThatDoesNotGrow) {
  const auto model = make_model(small_config(ModelVariant::t2));
  ModelState state = model->make_state(1);
  outputs(*model, random_tokens(1, 17), &state);
  const std::int64_t bytes = state.bytes();
  outputs(*model, random_tokens(1, 500), &state);
  for (int i = 0; i < 9; ++i) {
    outputs(*model, random_tokens(1, 1), &state);
  }
  EXPECT_EQ(state.bytes(), bytes);
}

TEST(TransNormer, RefusesPositionsPastALearnedTable) {
  ModelConfig config = small_config(ModelVariant::t2);
  config.position = PositionKind::learned;
  const auto model = make_model(config);
  EXPECT_NO_THROW(outputs(*model, random_tokens(1, 64)));
  EXPECT_THROW(outputs(*model, random_tokens(1, 65)), UserError);
  ModelState state = model->make_state(1);
  outputs(*model, random_tokens(1, 64), &state);
  EXPECT_THROW(outputs(*model, random_tokens(1, 1), &state), UserError);
}

TEST(TransNormer, TiesTheOutputLayerToTheEmbeddingWhereAsked) {
  const auto tied = make_model(small_config(ModelVariant::t2));
  EXPECT_TRUE(tied->output_weight().value().is_same(named_tensors(*tied).front().tensor));
  ModelConfig config = small_config(ModelVariant::t2);
  config.tie_embeddings = false;
  const auto untied = make_model(config);
  EXPECT_EQ(named_tensors(*untied).back().name, "output.weight");
  EXPECT_TRUE(untied->output_weight().value().is_same(named_tensors(*untied).back().tensor));
  EXPECT_FALSE(at::equal(untied->output_weight().value(), named_tensors(*untied).front().tensor));
}

// The message of the UserError that building this model throws.
std::string refusal(const ModelConfig& config, const ModelSize& size, at::Device device) {
  try {
    const TransNormer model(config, size, device);
  } catch (const UserError& error) {
    return error.faults().front();
  }
  return "";
}

TEST(TransNormer, RefusesPartsThatDoNotFitTogether) {
  const ModelSize size{.vocab_size = kWords, .max_positions = 64};
  const auto refused = [&](const std::function<void(ModelConfig&)>& change) {
    ModelConfig config = small_config(ModelVariant::t2);
    change(config);
    return refusal(config, size, at::kMeta);
  };
  EXPECT_EQ(refused([](ModelConfig&) {}), "");
  EXPECT_THAT(refused([](ModelConfig& c) { c.heads = 5; }), HasSubstr("model.heads"));
  EXPECT_THAT(refused([](ModelConfig& c) { c.heads = 8; }), HasSubstr("model.lrpe"));
  EXPECT_THAT(refused([](ModelConfig& c) { c.early_layers = 4; }), HasSubstr("model.early_layers"));
  EXPECT_THAT(refusal(small_config(ModelVariant::t2), {}, at::kMeta),
              HasSubstr("model.vocab_size"));
}

TEST(TransNormer, RefusesSizesThatTheMachineCannotHoldAndSaysWhatTheyTake) {
  ModelConfig config = small_config(ModelVariant::t2);
  config.dim = 1 << 20;
  config.layers = 2;
  EXPECT_THAT(refusal(config, {.vocab_size = 1000}, at::kCPU), HasSubstr("TiB"));
  config.dim = std::int64_t{1} << 40;
  EXPECT_THAT(refusal(config, {.vocab_size = 1000}, at::kMeta),
              HasSubstr("more than any machine has"));
  config = small_config(ModelVariant::t2);
  config.layers = 2'000'000'000;
  EXPECT_THAT(refusal(config, {.vocab_size = 1000}, at::kMeta), HasSubstr("TiB"));
}

TEST(TransNormer, IsCloseInHalfPrecisions) {
  for (const auto& [name, config] : many_configs()) {
    const auto model = make_model(config);
    const at::Tensor tokens = random_tokens(2, 37);
    const at::Tensor exact = outputs(*model, tokens);
    at::NoGradGuard no_grad;
    const at::Tensor brain = model->forward(tokens, {.compute = at::kBFloat16});
    EXPECT_EQ(brain.scalar_type(), at::kBFloat16);
    EXPECT_LT(relative_error(brain, exact), 0.08) << name;
    const at::Tensor half = model->forward(tokens, {.compute = at::kHalf});
    EXPECT_EQ(half.scalar_type(), at::kHalf);
    EXPECT_LT(relative_error(half, exact), 0.01) << name;
  }
}

}  // namespace
}  // namespace transnormer::test
