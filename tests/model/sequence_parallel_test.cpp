// A model whose sequences lie on several ranks against the same model on one.
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "dist/threads.h"
#include "model/attention/diag.h"
#include "model/attention/norm.h"
#include "model/attention/registry.h"
#include "model/models.h"
#include "util/error.h"

namespace transnormer::test {
namespace {

ForwardContext training_context() {
  return {.training = true, .seed = 11, .update = 5, .first_sample = 640};
}

ModelConfig with_dropout(ModelConfig config) {
  config.dropout = 0.1;
  config.attention_dropout = 0.2;
  return config;
}

struct Pass {
  at::Tensor hidden;
  double loss = 0;
  NamedGradients gradients;
};

Pass whole_pass(const ModelConfig& config, const at::Tensor& tokens, const at::Tensor& targets,
                const ForwardContext& context) {
  const auto model = make_model(config);
  Pass pass;
  {
    const at::NoGradGuard no_gradients;
    pass.hidden = model->forward(tokens, context);
  }
  pass.loss = accumulate_loss(*model, tokens, targets, context);
  pass.gradients = gradients(*model);
  return pass;
}

// The same by ranks with a part each: hidden states put together, losses and gradients summed up.
Pass shared_pass(int ranks, const ModelConfig& config, const at::Tensor& tokens,
                 const at::Tensor& targets, const ForwardContext& given) {
  Pass pass;
  dist::with_group(ranks, [&](const dist::Group& group) {
    at::set_num_threads(1);
    const auto part = [&](const at::Tensor& x) {
      const std::int64_t time = x.size(1) / ranks;
      return x.narrow(1, group.rank() * time, time);
    };
    ForwardContext context = given;
    context.sequence = &group;
    const Pass own = whole_pass(config, part(tokens), part(targets), context);
    std::vector<double> loss{own.loss};
    group.sum(loss);
    for (const auto& [name, gradient] : own.gradients) {
      group.sum(gradient);
    }
    const at::Tensor hidden = at::cat(group.gather(own.hidden).unbind(0), 1);
    if (group.rank() == 0) {
      pass = {hidden, loss[0], own.gradients};
    }
  });
  return pass;
}

void expect_same(const Pass& found, const Pass& expected, double tolerance,
                 const std::string& what) {
  EXPECT_LT(relative_error(found.hidden, expected.hidden), tolerance) << what;
  EXPECT_NEAR(found.loss, expected.loss, tolerance * expected.loss) << what;
  expect_close(found.gradients, expected.gradients, 10 * tolerance, what);
}

TEST(SequenceParallel, GivesTheLossAndTheGradientsOfOneProcess) {
  constexpr std::int64_t kTime = 48;
  const at::Tensor tokens = random_tokens(3, kTime, 2), targets = random_tokens(3, kTime, 3);
  int tried = 0;
  for (const auto& [name, plain] : many_configs()) {
    const ModelConfig config = with_dropout(plain);
    if (!unfit_for_sequence_parallel(config, kTime, 2).empty()) {
      continue;
    }
    ++tried;
    const Pass expected = whole_pass(config, tokens, targets, training_context());
    for (const int ranks : {2, 3}) {
      expect_same(shared_pass(ranks, config, tokens, targets, training_context()), expected, 3e-5,
                  name + " on " + std::to_string(ranks));
    }
  }
  EXPECT_GE(tried, 12);
}

TEST(SequenceParallel, RecomputesLayersOnAllRanksAlike) {
  const at::Tensor tokens = random_tokens(2, 64, 2), targets = random_tokens(2, 64, 3);
  for (const auto variant : {ModelVariant::t1, ModelVariant::t2}) {
    const ModelConfig config = with_dropout(small_config(variant));
    ForwardContext context = training_context();
    const Pass kept = shared_pass(4, config, tokens, targets, context);
    context.activation_checkpointing = true;
    const Pass again = shared_pass(4, config, tokens, targets, context);
    EXPECT_EQ(again.loss, kept.loss);
    for (std::size_t i = 0; i < kept.gradients.size(); ++i) {
      EXPECT_TRUE(at::equal(again.gradients[i].second, kept.gradients[i].second))
          << kept.gradients[i].first;
    }
  }
}

TEST(SequenceParallel, HoldsOverThousandsOfTokens) {
  constexpr std::int64_t kTime = 8192;
  const at::Tensor tokens = random_tokens(1, kTime, 2), targets = random_tokens(1, kTime, 3);
  const ModelConfig config = with_dropout(small_config(ModelVariant::t2));
  const Pass expected = whole_pass(config, tokens, targets, training_context());
  for (const int ranks : {2, 4}) {
    expect_same(shared_pass(ranks, config, tokens, targets, training_context()), expected, 2e-5,
                std::to_string(ranks) + " ranks");
  }
}

TEST(SequenceParallel, InBfloat16StaysWithinItsRounding) {
  const at::Tensor tokens = random_tokens(2, 256, 2), targets = random_tokens(2, 256, 3);
  const ModelConfig config = with_dropout(small_config(ModelVariant::t2));
  const Pass exact = whole_pass(config, tokens, targets, training_context());
  ForwardContext context = training_context();
  context.compute = at::kBFloat16;
  const Pass found = shared_pass(2, config, tokens, targets, context);
  EXPECT_NEAR(found.loss, exact.loss, 0.01 * exact.loss);
  expect_close(found.gradients, exact.gradients, 0.1, "bf16");
}

TEST(SequenceParallel, RefusesALearnedTableThatIsTooShortOnEveryRank) {
  ModelConfig config = small_config(ModelVariant::t2);
  config.variant = ModelVariant::custom;
  config.position = PositionKind::learned;
  dist::with_group(2, [&](const dist::Group& group) {
    const auto model = make_model(config);  // of 64 positions
    EXPECT_THROW((void)model->forward(random_tokens(1, 40), {.sequence = &group}), UserError);
  });
}

TEST(SequenceParallel, RefusesWhatOnlyAWholeSequenceHas) {
  dist::with_group(2, [](const dist::Group& group) {
    const auto model = make_model(small_config(ModelVariant::t2));
    const at::Tensor tokens = random_tokens(1, 16);
    ForwardContext context{.sequence = &group};
    ModelState state = model->make_state(1);
    EXPECT_THROW((void)model->forward(tokens, context, &state), c10::Error);
    EXPECT_THROW((void)model->forward(tokens.narrow(1, 0, 12), context),
                 c10::Error);  // a half block
    context.visibility.padding = tokens.eq(0);
    EXPECT_THROW((void)model->forward(tokens, context), c10::Error);
  });
}

TEST(SequenceParallel, OneLineNamesEachReasonAgainstIt) {
  using testing::ElementsAre;
  using testing::IsEmpty;
  ModelConfig config = small_config(ModelVariant::t2);
  EXPECT_THAT(unfit_for_sequence_parallel(config, 48, 1), IsEmpty());
  EXPECT_THAT(unfit_for_sequence_parallel(config, 48, 3), IsEmpty());
  EXPECT_THAT(unfit_for_sequence_parallel(config, 48, 5),
              ElementsAre("distributed.sequence_parallel: expected a divisor of "
                          "data.tokens_per_sample (48), got 5"));
  EXPECT_THAT(unfit_for_sequence_parallel(config, 48, 4),
              ElementsAre("model.early: the attention \"diag\" needs parts of a multiple of 8 "
                          "tokens; data.tokens_per_sample over distributed.sequence_parallel is "
                          "12, set a multiple of 32"));
  config.late = "softmax";
  EXPECT_THAT(unfit_for_sequence_parallel(config, 48, 2),
              ElementsAre("model.late: the attention \"softmax\" cannot be shared by ranks; set "
                          "distributed.sequence_parallel to 1, or choose one of diag, norm"));
  config.early_layers = config.layers;  // no layer has the late one
  EXPECT_THAT(unfit_for_sequence_parallel(config, 48, 2), IsEmpty());
  config.causal = false;
  EXPECT_THAT(unfit_for_sequence_parallel(config, 48, 2),
              ElementsAre("distributed.sequence_parallel: expected 1 where model.causal is false, "
                          "got 2"));
}

}  // namespace
}  // namespace transnormer::test
