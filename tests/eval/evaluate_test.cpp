#include "eval/evaluate.h"

#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "model/attention/diag.h"
#include "model/weights.h"
#include "util/error.h"

namespace transnormer {
namespace {

constexpr std::int64_t kVocab = 29;
constexpr std::int64_t kWindow = 12;
constexpr TokenId kFirstInput = 2;

// A model whose window is no multiple of its block.
std::shared_ptr<TransNormer> small_model() {
  at::set_num_threads(1);  // more only wait for each other at this size
  ModelConfig config;
  config.layers = 2;
  config.dim = 16;
  config.heads = 2;
  config.early = DiagAttentionConfig{.block = 8};
  config.dropout = 0.5;
  auto model = std::make_shared<TransNormer>(config, ModelSize{kVocab, kWindow}, at::kCPU);
  initialize(*model, 3);
  return model;
}

std::vector<TokenId> some_tokens(std::int64_t count) {
  std::vector<TokenId> tokens;
  for (std::int64_t i = 0; i < count; ++i) {
    tokens.push_back(static_cast<TokenId>((i * i * 7 + 3 * i) % kVocab));
  }
  return tokens;
}

// The loss of one token given the inputs before it, by a plain loop over the words.
double loss_after(TransNormer& model, const std::vector<std::int64_t>& inputs, TokenId target) {
  const at::NoGradGuard no_grad;
  const at::Tensor hidden = model.forward(torch::tensor(inputs).unsqueeze(0), {});
  const at::Tensor logits = model.logits(hidden, {})[0][-1];
  double sum = 0;
  for (std::int64_t word = 0; word < kVocab; ++word) {
    sum += std::exp(logits[word].item<double>());
  }
  return std::log(sum) - logits[target].item<double>();
}

// Each token by itself: the inputs from the start of the window that scores it up to the token.
std::vector<double> reference_losses(TransNormer& model, const std::vector<TokenId>& tokens,
                                     std::int64_t context_window) {
  const std::int64_t stride = kWindow - context_window;
  std::vector<double> losses;
  for (std::int64_t t = 0; t < static_cast<std::int64_t>(tokens.size()); ++t) {
    std::int64_t begin = 0;
    while (t >= begin + kWindow) {
      begin += stride;
    }
    std::vector<std::int64_t> inputs;
    for (std::int64_t i = begin; i <= t; ++i) {
      inputs.push_back(i == 0 ? kFirstInput : tokens[static_cast<std::size_t>(i - 1)]);
    }
    losses.push_back(loss_after(model, inputs, tokens[static_cast<std::size_t>(t)]));
  }
  return losses;
}

struct Scored {
  EvaluateResult result;
  std::vector<float> losses;
};

Scored score(TransNormer& model, const std::vector<TokenId>& tokens, EvaluateOptions options) {
  Scored scored;
  options.window = kWindow;
  options.first_input = kFirstInput;
  options.on_tokens = [&scored](std::int64_t index, std::span<const float> nll) {
    ASSERT_EQ(index, static_cast<std::int64_t>(scored.losses.size()));
    scored.losses.insert(scored.losses.end(), nll.begin(), nll.end());
  };
  scored.result = evaluate(model, TokenStream(tokens), options);
  return scored;
}

TEST(Evaluate, ScoresEachTokenOnceGivenItsWindow) {
  const auto model = small_model();
  for (const std::int64_t count : {1, 11, 12, 13, 24, 31, 40}) {
    for (const std::int64_t context : {0, 1, 5, 11}) {
      const std::vector<TokenId> tokens = some_tokens(count);
      const Scored scored = score(*model, tokens, {.context_window = context});
      const std::vector<double> expected = reference_losses(*model, tokens, context);
      ASSERT_EQ(scored.losses.size(), expected.size()) << count << " tokens, context " << context;
      for (std::size_t i = 0; i < expected.size(); ++i) {
        ASSERT_NEAR(scored.losses[i], expected[i], 2e-5) << i << " of " << count;
      }
      EXPECT_EQ(scored.result.tokens, count);
      EXPECT_NEAR(scored.result.nll_sum, std::accumulate(expected.begin(), expected.end(), 0.0),
                  1e-5 * static_cast<double>(count));
    }
  }
}

TEST(Evaluate, IsTheSameAtAnyBatchSize) {
  const auto model = small_model();
  const std::vector<TokenId> tokens = some_tokens(101);
  for (const std::int64_t context : {0, 5}) {
    const Scored one = score(*model, tokens, {.context_window = context, .batch_size = 1});
    for (const std::int64_t batch : {2, 3, 8, 1000}) {
      const Scored many = score(*model, tokens, {.context_window = context, .batch_size = batch});
      EXPECT_NEAR(many.result.nll_sum, one.result.nll_sum, 1e-6 * one.result.nll_sum) << batch;
      ASSERT_EQ(many.losses.size(), one.losses.size());
      for (std::size_t i = 0; i < one.losses.size(); ++i) {
        ASSERT_NEAR(many.losses[i], one.losses[i], 2e-6 * std::abs(one.losses[i])) << batch;
      }
    }
  }
}

TEST(Evaluate, HasNoDropoutAndKeepsNoGradients) {
  const auto model = small_model();
  model->train();
  const std::vector<TokenId> tokens = some_tokens(50);
  const Scored first = score(*model, tokens, {});
  const Scored second = score(*model, tokens, {});
  EXPECT_EQ(first.losses, second.losses);
  for (const NamedTensor& parameter : named_tensors(*model)) {
    EXPECT_FALSE(parameter.tensor.grad().defined()) << parameter.name;
  }
}

TEST(Evaluate, SumsSquaresForTheStandardError) {
  const auto model = small_model();
  const Scored scored = score(*model, some_tokens(40), {});
  const auto n = static_cast<double>(scored.losses.size());
  const double mean = std::accumulate(scored.losses.begin(), scored.losses.end(), 0.0) / n;
  double squares = 0;
  for (const double loss : scored.losses) {
    squares += (loss - mean) * (loss - mean);
  }
  EXPECT_NEAR(scored.result.nll(), mean, 1e-12);
  EXPECT_NEAR(scored.result.nll_stderr(), std::sqrt(squares / (n - 1) / n), 1e-9);
}

TEST(Evaluate, StopsBetweenBatchesWhenAsked) {
  const auto model = small_model();
  int asked = 0;
  EvaluateOptions options{.batch_size = 2};
  options.should_stop = [&asked] { return ++asked == 3; };
  const Scored scored = score(*model, some_tokens(100), options);
  EXPECT_FALSE(scored.result.complete);
  EXPECT_EQ(scored.result.tokens, 2 * 2 * kWindow);
}

TEST(Evaluate, RefusesAContextThatFillsTheWindow) {
  const auto model = small_model();
  EXPECT_THROW((void)score(*model, some_tokens(20), {.context_window = kWindow}), UserError);
  EXPECT_THROW((void)score(*model, some_tokens(20), {.context_window = -1}), UserError);
}

TEST(UnigramNll, AddsOneToEachTrainingCount) {
  // 4 + 3 = 7 shares: 4/7, 1/7, 2/7.
  const double expected = -(std::log(4.0 / 7) + 2 * std::log(1.0 / 7) + std::log(2.0 / 7)) / 4;
  EXPECT_NEAR(unigram_nll(TokenStream({0, 1, 1, 2}), {3, 0, 1}), expected, 1e-12);
}

TEST(Evaluate, ALimitScoresTheFirstWholeWindowsAndLeavesTheirLosses) {
  const auto model = small_model();
  const std::vector<TokenId> tokens = some_tokens(101);
  for (const std::int64_t context : {0, 5}) {
    const Scored all = score(*model, tokens, {.context_window = context, .batch_size = 1});
    const std::int64_t stride = kWindow - context;
    for (const std::int64_t most : {1, 12, 13, 40, 100, 101, 1000}) {
      const Scored first =
          score(*model, tokens, {.context_window = context, .batch_size = 1, .max_tokens = most});
      std::int64_t expected = kWindow;  // one window at least
      while (expected + stride <= std::min<std::int64_t>(most, 101)) {
        expected += stride;
      }
      expected = most >= 101 ? 101 : expected;
      ASSERT_EQ(first.result.tokens, expected) << most;
      EXPECT_TRUE(std::equal(first.losses.begin(), first.losses.end(), all.losses.begin())) << most;
    }
  }
}

}  // namespace
}  // namespace transnormer
