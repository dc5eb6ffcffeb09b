#include "ops/loss/linear_cross_entropy.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "ops/loss/linear_cross_entropy_tensor.h"
#include "ops/reference.h"

namespace transnormer::ops {
namespace {

constexpr double kScale = 0.37;

struct Answers {
  std::vector<double> losses, d_hidden, d_weight;
  double nll = 0;
};

Answers reference(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& targets) {
  const std::vector<double> h = values(hidden), w = values(weight);
  const auto dim = static_cast<std::size_t>(weight.size(1)),
             words = static_cast<std::size_t>(weight.size(0));
  const auto target = targets.accessor<std::int64_t, 1>();
  Answers a{std::vector<double>(h.size() / dim), std::vector<double>(h.size()),
            std::vector<double>(w.size()), 0};
  for (std::size_t t = 0; t < a.losses.size(); ++t) {
    const std::int64_t wanted = target[static_cast<std::int64_t>(t)];
    if (wanted < 0) {
      continue;
    }
    std::vector<double> logits(words);
    double total = 0;
    for (std::size_t v = 0; v < words; ++v) {
      for (std::size_t i = 0; i < dim; ++i) {
        logits[v] += h[t * dim + i] * w[v * dim + i];
      }
      total += std::exp(logits[v]);
    }
    a.losses[t] = std::log(total) - logits[static_cast<std::size_t>(wanted)];
    a.nll += a.losses[t];
    for (std::size_t v = 0; v < words; ++v) {
      const double d = kScale * (std::exp(logits[v]) / total -
                                 (v == static_cast<std::size_t>(wanted) ? 1.0 : 0.0));
      for (std::size_t i = 0; i < dim; ++i) {
        a.d_hidden[t * dim + i] += d * w[v * dim + i];
        a.d_weight[v * dim + i] += d * h[t * dim + i];
      }
    }
  }
  return a;
}

at::Tensor some_targets(std::int64_t tokens, std::int64_t words) {
  at::Tensor targets = at::arange(tokens, at::kLong) * 31 % words;
  targets.slice(0, 3, tokens, 7).fill_(-1);
  return targets;
}

// Words, and how many tokens a slice may hold.
class LossInSlices : public testing::TestWithParam<std::pair<std::int64_t, std::int64_t>> {
 protected:
  std::int64_t words = GetParam().first;
  at::Tensor hidden = normal({50, 24}, 1);
  at::Tensor weight = normal({words, 24}, 2);
  at::Tensor targets = some_targets(50, words);

  [[nodiscard]] LinearCrossEntropyOptions options(at::ScalarType compute) const {
    return {.compute = compute,
            .scale = at::scalar_tensor(kScale, at::kFloat),
            .memory_bytes = GetParam().second * words *
                            static_cast<std::int64_t>(compute == at::kBFloat16 ? 2 : 4)};
  }
};

TEST_P(LossInSlices, AgreesWithLoopsForwardAndBackward) {
  const Answers expected = reference(hidden, weight, targets);
  const at::Tensor h = leaf(hidden), w = leaf(weight);
  const CrossEntropy result = linear_cross_entropy(h, w, targets, options(at::kFloat));
  result.loss.backward();
  EXPECT_NEAR(result.nll.item<double>(), expected.nll, 1e-6 * expected.nll);
  EXPECT_NEAR(result.loss.item<double>(), kScale * expected.nll, 1e-6 * expected.nll);
  EXPECT_LT(distance(h.grad(), expected.d_hidden), 2e-6);
  EXPECT_LT(distance(w.grad(), expected.d_weight), 2e-6);
  EXPECT_LT(distance(token_losses(hidden, weight, targets, options(at::kFloat)), expected.losses),
            1e-6);
}

TEST_P(LossInSlices, HalfPrecisionsAreWithinTheErrorOfAProduct) {
  for (const auto& [type, tolerance] :
       {std::pair{at::kBFloat16, 3e-2}, std::pair{at::kHalf, 2e-3}}) {
    const at::Tensor rounded_h = hidden.to(type), rounded_w = weight.to(type).to(at::kFloat);
    const Answers expected = reference(rounded_h, rounded_w, targets);
    const at::Tensor h = leaf(rounded_h), w = leaf(rounded_w);
    const CrossEntropy result = linear_cross_entropy(h, w, targets, options(type));
    result.loss.backward();
    EXPECT_NEAR(result.nll.item<double>(), expected.nll, tolerance * 0.1 * expected.nll);
    EXPECT_LT(distance(h.grad(), expected.d_hidden), tolerance);
    EXPECT_LT(distance(w.grad(), expected.d_weight), tolerance);
    EXPECT_EQ(w.grad().scalar_type(), at::kFloat);
    EXPECT_EQ(h.grad().scalar_type(), type);
  }
}

TEST_P(LossInSlices, InTensorOperationsAgreesToo) {
  const Answers expected = reference(hidden, weight, targets);
  at::Tensor logits = at::mm(hidden, weight.t());
  const at::Tensor untouched = logits.clone();
  at::Tensor losses = at::full({50}, NAN);
  loss_of_slice_by_tensors(logits, targets, losses, {});
  EXPECT_LT(distance(losses, expected.losses), 1e-6);
  EXPECT_TRUE(at::equal(logits, untouched));
  losses.fill_(NAN);
  loss_of_slice_by_tensors(logits, targets, losses, at::scalar_tensor(kScale, at::kFloat));
  EXPECT_LT(distance(losses, expected.losses), 1e-6);
  EXPECT_LT(distance(at::mm(logits, weight), expected.d_hidden), 2e-6);
  EXPECT_LT(distance(at::mm(logits.t(), hidden), expected.d_weight), 2e-6);
}

INSTANTIATE_TEST_SUITE_P(Sizes, LossInSlices,
                         testing::Values(std::pair<std::int64_t, std::int64_t>{40, 1},
                                         std::pair<std::int64_t, std::int64_t>{1037, 1},
                                         std::pair<std::int64_t, std::int64_t>{1037, 7},
                                         std::pair<std::int64_t, std::int64_t>{2500, 49},
                                         std::pair<std::int64_t, std::int64_t>{3, 1000}));

TEST(LinearCrossEntropy, AddsToTheGradientOfALeafAndReturnsThatOfAnInnerTensor) {
  const at::Tensor hidden = normal({20, 8}, 1), weight = normal({30, 8}, 2);
  const at::Tensor targets = some_targets(20, 30);
  const LinearCrossEntropyOptions options{.scale = at::scalar_tensor(kScale, at::kFloat)};
  const Answers expected = reference(hidden, weight, targets);

  const at::Tensor direct = leaf(weight);
  direct.mutable_grad() = at::ones_like(weight);
  linear_cross_entropy(leaf(hidden), direct, targets, options).loss.backward();
  EXPECT_LT(distance(direct.grad() - 1, expected.d_weight), 1e-5);

  const at::Tensor h = leaf(hidden), base = leaf(weight);
  const at::Tensor loss = linear_cross_entropy(h, base * 1, targets, options).loss;
  (3 * loss).backward();
  EXPECT_LT(distance(base.grad() / 3, expected.d_weight), 2e-6);
  EXPECT_LT(distance(h.grad() / 3, expected.d_hidden), 2e-6);
}

TEST(LinearCrossEntropy, RefusesAnotherGradientThanOneForALeaf) {
  const at::Tensor h = leaf(normal({4, 8}, 1)), w = leaf(normal({9, 8}, 2));
  const at::Tensor loss = linear_cross_entropy(h, w, some_targets(4, 9), {}).loss;
  EXPECT_THROW((2 * loss).backward(), c10::Error);
}

TEST(LinearCrossEntropy, WithEveryTargetIgnoredIsZeroWithZeroGradients) {
  const at::Tensor h = leaf(normal({4, 8}, 1)), w = leaf(normal({9, 8}, 2));
  const CrossEntropy result = linear_cross_entropy(h, w, at::full({4}, -1, at::kLong), {});
  result.loss.backward();
  EXPECT_EQ(result.nll.item<double>(), 0);
  EXPECT_EQ(h.grad().abs().max().item<double>(), 0);
  EXPECT_EQ(w.grad().abs().max().item<double>(), 0);
}

TEST(LinearCrossEntropy, RefusesATargetThatIsNoWord) {
  const at::Tensor h = normal({2, 8}, 1), w = normal({9, 8}, 2);
  EXPECT_THROW((void)token_losses(h, w, at::full({2}, 9, at::kLong), {}), c10::Error);
}

TEST(LinearCrossEntropy, MakesNoGradientsWhereNoneAreWanted) {
  const at::Tensor h = normal({4, 8}, 1), w = leaf(normal({9, 8}, 2));
  const at::NoGradGuard guard;
  const CrossEntropy result = linear_cross_entropy(h, w, some_targets(4, 9), {});
  EXPECT_FALSE(w.grad().defined());
  EXPECT_FALSE(result.loss.requires_grad());
}

TEST(LinearCrossEntropy, LargeLogitsNeitherOverflowNorVanish) {
  const at::Tensor h = at::full({1, 1}, 1.0),
                   w = at::tensor({-2000.F, 3000.F, 2990.F}).view({3, 1});
  const at::Tensor losses = token_losses(h, w, at::zeros({1}, at::kLong), {});
  EXPECT_NEAR(losses.item<double>(), 5000 + std::log1p(std::exp(-10.0)), 1e-3);
}

TEST(LinearCrossEntropy, InTensorOperationsLargeLogitsNeitherOverflowNorVanish) {
  at::Tensor logits = at::tensor({-2000.F, 3000.F, 2990.F}).view({1, 3});
  at::Tensor losses = at::empty({1});
  loss_of_slice_by_tensors(logits, at::zeros({1}, at::kLong), losses, at::ones({}));
  EXPECT_NEAR(losses.item<double>(), 5000 + std::log1p(std::exp(-10.0)), 1e-3);
  constexpr double kUnit = 0x1p-12;  // of a single-precision number near 3000
  EXPECT_NEAR(logits[0][0].item<double>(), -1, kUnit);
  EXPECT_NEAR(logits[0][1].item<double>(), 1, kUnit);
  EXPECT_NEAR(logits[0][2].item<double>(), std::exp(-10.0), std::exp(-10.0) * kUnit);
}

TEST(LinearCrossEntropy, AfterAThousandSlicesBfloat16StillHasTheErrorOfOneProduct) {
  const at::Tensor hidden = normal({1000, 16}, 1).to(at::kBFloat16);
  const at::Tensor weight = normal({64, 16}, 2).to(at::kBFloat16).to(at::kFloat);
  const at::Tensor targets = some_targets(1000, 64);
  const Answers expected = reference(hidden, weight, targets);
  const at::Tensor w = leaf(weight);
  const CrossEntropy result = linear_cross_entropy(leaf(hidden), w, targets,
                                                   {.compute = at::kBFloat16,
                                                    .scale = at::scalar_tensor(kScale, at::kFloat),
                                                    .memory_bytes = 1});
  result.loss.backward();
  EXPECT_LT(distance(w.grad(), expected.d_weight), 4e-3);
}

}  // namespace
}  // namespace transnormer::ops
