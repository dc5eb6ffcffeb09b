// What the tokens of a model see: the past only or all, nothing at padding, their own segment.
#include "ops/attention/visibility.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "model/models.h"

namespace transnormer::test {
namespace {

std::vector<NamedConfig> both_ways() {
  std::vector<NamedConfig> configs;
  for (NamedConfig named : many_configs()) {
    configs.push_back(named);
    named.config.variant = ModelVariant::custom;
    named.config.causal = false;
    named.name += ", bidirectional";
    configs.push_back(named);
  }
  return configs;
}

TEST(Visibility, OfACausalModelEndsAtTheTokenAndOfAnotherIsTheWholeBlock) {
  const at::NoGradGuard no_grad;
  const at::Tensor tokens = random_tokens(1, 13);
  at::Tensor other = tokens.clone();
  other[0][6] = (tokens[0][6] + 1) % kWords;  // of the first block of eight
  for (const auto& [name, config] : both_ways()) {
    const auto model = make_model(config);
    const at::Tensor change = (model->forward(tokens, {}) - model->forward(other, {})).abs();
    const double before = change.narrow(1, 0, 6).max().item<double>();
    EXPECT_GT(change[0][6].max().item<double>(), 0) << name;
    if (config.causal) {
      EXPECT_EQ(before, 0) << name;
    } else {
      EXPECT_GT(change[0][2].max().item<double>(), 0) << name;
    }
  }
}

// Neither what stands at padding nor how much of it there is changes an output or a gradient.
TEST(Visibility, PaddingIsNotSeenAtAll) {
  for (const auto& [name, config] : both_ways()) {
    const at::Tensor tokens = random_tokens(2, 11, 2);
    const auto run = [&, &config = config](std::int64_t padding_tokens, std::int64_t filler) {
      const auto model = make_model(config);
      const at::Tensor padded =
          at::cat({tokens, at::full({2, padding_tokens}, filler, at::kLong)}, 1);
      ForwardContext context;
      if (padding_tokens > 0) {
        context.visibility.padding =
            (at::arange(11 + padding_tokens) >= 11).expand({2, -1}).contiguous();
      }
      const at::Tensor y = model->forward(padded, context).narrow(1, 0, 11);
      const at::Tensor weights = at::sin(at::arange(y.numel()).view_as(y) * 0.7);
      (y * weights).sum().backward();
      NamedGradients reached = gradients(*model);  // not an output layer of its own
      std::erase_if(reached, [](const auto& named) { return !named.second.defined(); });
      return std::pair(y.detach(), reached);
    };
    const auto [plain, plain_gradients] = run(0, 0);
    for (const auto& [count, filler] : {std::pair(3, 1), std::pair(3, 30), std::pair(9, 5)}) {
      const auto [padded, padded_gradients] = run(count, filler);
      EXPECT_LT(relative_error(padded, plain), 1e-5) << name;
      expect_close(padded_gradients, plain_gradients, 1e-4, name);
    }
  }
}

// Two sequences in one row, told apart by segments and positions, as in rows of their own.
TEST(Visibility, SegmentsOfARowDoNotSeeEachOther) {
  const at::NoGradGuard no_grad;
  const at::Tensor a = random_tokens(1, 10, 2);
  const at::Tensor b = random_tokens(1, 13, 3);
  ForwardContext context;
  context.visibility.segments =
      at::cat({at::zeros({1, 10}, at::kLong), at::ones({1, 13}, at::kLong)}, 1);
  context.positions = at::cat({at::arange(10), at::arange(13)}).view({1, -1});
  for (const auto& [name, config] : both_ways()) {
    const auto model = make_model(config);
    const at::Tensor packed = model->forward(at::cat({a, b}, 1), context);
    const at::Tensor apart = at::cat({model->forward(a, {}), model->forward(b, {})}, 1);
    EXPECT_LT(relative_error(packed, apart), 1e-5) << name;
  }
}

// Blocks then begin at no multiple of their length.
TEST(Visibility, PaddingInFrontIsNotSeenWherePositionsAreNamed) {
  const at::NoGradGuard no_grad;
  constexpr std::int64_t kFront = 5, kTokens = 19;
  const at::Tensor tokens = random_tokens(2, kTokens, 4);
  const at::Tensor padded = at::cat({at::full({2, kFront}, 7, at::kLong), tokens}, 1);
  const at::Tensor time = at::arange(kFront + kTokens, at::kLong).expand({2, -1});
  ForwardContext context;
  context.visibility.padding = time < kFront;
  context.positions = (time - kFront).clamp_min(0);
  for (const auto& [name, config] : both_ways()) {
    const auto model = make_model(config);
    const at::Tensor found = model->forward(padded, context).narrow(1, kFront, kTokens);
    EXPECT_LT(relative_error(found, model->forward(tokens, {})), 1e-5) << name;
  }
}

TEST(Visibility, PositionsThatAreNamedStandInThePlaceOfTheOwn) {
  const at::NoGradGuard no_grad;
  const at::Tensor tokens = random_tokens(2, 9);
  ForwardContext running;
  running.positions = at::arange(9).expand({2, 9}).contiguous();
  ForwardContext moved;
  moved.positions = running.positions + 5;
  for (const auto& [name, config] : both_ways()) {
    const auto model = make_model(config);
    const at::Tensor own = model->forward(tokens, {});
    EXPECT_LT(relative_error(model->forward(tokens, running), own), 1e-5) << name;
    if (config.position != PositionKind::none) {
      EXPECT_GT(relative_error(model->forward(tokens, moved), own), 1e-3) << name;
    }
  }
}

// LRPE is of differences: without other positions, where all begin shows nowhere.
TEST(Visibility, PositionsThatAreAllMovedChangeNothingInRelativeEncodings) {
  const at::NoGradGuard no_grad;
  const at::Tensor tokens = random_tokens(2, 19);
  ForwardContext running;
  running.positions = at::arange(19).expand({2, 19}).contiguous();
  ForwardContext moved;
  moved.positions = running.positions + 5;
  for (auto [name, config] : both_ways()) {
    config.position = PositionKind::none;
    const auto model = make_model(config);
    const at::Tensor own = model->forward(tokens, running);
    EXPECT_LT(relative_error(model->forward(tokens, moved), own), 1e-5) << name;
    EXPECT_LT(relative_error(model->forward(tokens, {}), own), 1e-5) << name;
  }
}

TEST(Visibility, IsForCallsWithoutAState) {
  const at::NoGradGuard no_grad;
  const auto model = make_model(small_config(ModelVariant::t2));
  ModelState state = model->make_state(1);
  ForwardContext context;
  context.visibility.padding = at::zeros({1, 4}, at::kBool);
  EXPECT_THROW(static_cast<void>(model->forward(random_tokens(1, 4), context, &state)), c10::Error);
}

}  // namespace
}  // namespace transnormer::test
