#include "analyze/dilution.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "analyze/subjects.h"
#include "model/models.h"

namespace transnormer {
namespace {

// l(i, r) summed up element by element, over heads and tokens.
std::vector<double> curve_by_loops(const at::Tensor& weights) {
  const std::int64_t n = weights.size(1);
  std::vector<double> curve;
  for (int point = 0; point <= 20; ++point) {
    double sum = 0;
    double rows = 0;
    for (std::int64_t head = 0; head < weights.size(0); ++head) {
      for (std::int64_t i = 0; i < n; ++i) {
        double all = 0;
        double inside = 0;
        for (std::int64_t j = 0; j < n; ++j) {
          const double size = std::abs(weights[head][i][j].item<double>());
          all += size;
          inside += 40 * std::abs(i - j) <= point * n ? size : 0;  // |i - j| <= r n / 2
        }
        sum += all > 0 ? inside / all : 0;
        rows += all > 0 ? 1 : 0;
      }
    }
    curve.push_back(sum / rows);
  }
  return curve;
}

void expect_near(const std::vector<double>& actual, const std::vector<double>& expected,
                 double tolerance) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(actual[i], expected[i], tolerance) << i;
  }
}

TEST(Dilution, SumsByDistanceAreThoseOfTheDiagonals) {
  const at::Tensor p = at::rand({2, 5, 5}, at::kDouble);
  const at::Tensor sums = sums_by_distance(p);
  ASSERT_EQ(sums.numel(), 5);
  for (std::int64_t d = 0; d < 5; ++d) {
    at::Tensor expected = p.diagonal(d, 1, 2).sum();
    if (d > 0) {
      expected = expected + p.diagonal(-d, 1, 2).sum();
    }
    EXPECT_NEAR(sums[d].item<double>(), expected.item<double>(), 1e-12) << d;
  }
}

TEST(Dilution, OfSignedUnnormalisedWeightsAgreesWithPlainLoops) {
  at::Tensor weights = at::randn({2, 13, 13}).mul_(7);
  weights[1][4].zero_();  // a token that attends to none
  DilutionCurve curve;
  curve.add(weights);
  expect_near(curve.values(), curve_by_loops(weights), 1e-9);
}

TEST(Dilution, ATokenThatSeesItselfOnlyHasAllOfItInAnyWindow) {
  DilutionCurve curve;
  curve.add(at::eye(40).mul(-3).unsqueeze(0));
  expect_near(curve.values(), std::vector<double>(21, 1.0), 1e-12);
  EXPECT_NEAR(curve.area(), 1, 1e-12);
}

// Spread evenly over n tokens, a window that holds m on each side has 2m + 1 of them, but for the
// ends, where m (m + 1) are missing in all.
TEST(Dilution, UniformAttentionHasTheCurveOfCountedTokens) {
  constexpr double kTokens = 40;
  DilutionCurve curve;
  curve.add(at::ones({3, 40, 40}));
  std::vector<double> expected;
  for (int m = 0; m <= 20; ++m) {
    expected.push_back(((2 * m + 1) * kTokens - m * (m + 1)) / (kTokens * kTokens));
  }
  expect_near(curve.values(), expected, 1e-12);
  EXPECT_EQ(DilutionCurve::window_shares().front(), 0);
  EXPECT_NEAR(DilutionCurve::window_shares()[1], 0.05, 1e-12);
  EXPECT_EQ(DilutionCurve::window_shares().back(), 1);
  double area = 0;
  for (int i = 0; i < 20; ++i) {
    area +=
        (expected[static_cast<std::size_t>(i)] + expected[static_cast<std::size_t>(i) + 1]) / 40;
  }
  EXPECT_NEAR(curve.area(), area, 1e-12);
}

TEST(Dilution, CurvesAddUpAsTheirRowsDo) {
  const at::Tensor first = at::rand({1, 9, 9});
  const at::Tensor second = at::rand({1, 9, 9});
  DilutionCurve sum;
  sum.add(first);
  DilutionCurve other;
  other.add(second);
  sum.add(other);
  expect_near(sum.values(), curve_by_loops(at::cat({first, second})), 1e-9);
}

TEST(Dilution, WeightsOfEachSelectedLayerAreThoseOfItsAttention) {
  const ModelConfig config = test::small_config(ModelVariant::t2);
  const Subject subject = test::make_subject(config);
  std::vector<std::int64_t> seen;
  for_each_weights(*subject.model, subject.windows[0].inputs, {.layers = {0, 2}},
                   [&](std::int64_t layer, const at::Tensor& weights) {
                     seen.push_back(layer);
                     EXPECT_EQ(weights.sizes(), (at::IntArrayRef{2, 20, 20}));
                     EXPECT_EQ(weights.triu(1).abs().max().item<double>(), 0);  // causal
                     if (layer == 0) {  // softmax in blocks of eight
                       EXPECT_TRUE(at::allclose(weights.sum(-1), at::ones({2, 20})));
                       EXPECT_EQ(weights[0][8][7].item<double>(), 0);
                     } else {
                       EXPECT_NE(weights[0][8][7].item<double>(), 0);
                     }
                   });
  EXPECT_EQ(seen, (std::vector<std::int64_t>{0, 2}));
}

}  // namespace
}  // namespace transnormer
