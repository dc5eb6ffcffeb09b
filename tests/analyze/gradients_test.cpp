#include "analyze/gradients.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "analyze/subjects.h"
#include "model/models.h"
#include "util/error.h"

namespace transnormer {
namespace {

// The largest |dp_ij/ds_ij| by autograd, one element of p after the other.
template <class Weigh>
double largest_by_autograd(const at::Tensor& scores, const Weigh& weigh) {
  double largest = 0;
  for (std::int64_t i = 0; i < scores.size(0); ++i) {
    for (std::int64_t j = 0; j < scores.size(1); ++j) {
      const at::Tensor s = scores.detach().clone().requires_grad_();
      weigh(s)[i][j].backward();
      largest = std::max(largest, std::abs(s.grad()[i][j].template item<double>()));
    }
  }
  return largest;
}

TEST(Gradients, OfSoftmaxAreThoseOfAutogradAndBelowAQuarter) {
  const at::Tensor s = at::randn({6, 6}, at::kDouble);
  const auto softmax = [](const at::Tensor& x) { return x.softmax(-1); };
  const double largest = largest_softmax_gradient(softmax(s));
  EXPECT_NEAR(largest, largest_by_autograd(s, softmax), 1e-12);
  EXPECT_LE(largest, 0.25);
  EXPECT_DOUBLE_EQ(largest_softmax_gradient(at::full({2, 2}, 0.5)), 0.25);
}

TEST(Gradients, OfLinearAttentionAreThoseOfAutogradAndGrowAsScoresVanish) {
  at::Tensor s = at::rand({6, 6}, at::kDouble).add_(0.1).tril();
  s[3][1] = 1e-5;
  const auto linear = [](const at::Tensor& x) { return x / x.sum(-1, true); };
  const LinearGradients found = linear_gradients(linear(s), s);
  // Pairs that are not seen have no gradient here, as the mask leaves them out.
  const auto masked = [&](const at::Tensor& x) { return linear(x.tril()); };
  double largest = 0;
  std::vector<double> bounds;
  for (std::int64_t i = 0; i < 6; ++i) {
    for (std::int64_t j = 0; j <= i; ++j) {
      const at::Tensor x = s.detach().clone().requires_grad_();
      masked(x)[i][j].backward();
      largest = std::max(largest, std::abs(x.grad()[i][j].item<double>()));
      bounds.push_back(1 / (4 * s[i][j].item<double>()));
    }
  }
  EXPECT_NEAR(found.largest, largest, 1e-9 * largest);
  EXPECT_NEAR(found.bound, 25000, 1e-6);
  EXPECT_LE(found.largest, found.bound);
  ASSERT_EQ(found.bounds.size(), bounds.size());
  for (std::size_t i = 0; i < bounds.size(); ++i) {
    EXPECT_NEAR(found.bounds[i], bounds[i], 1e-6 * bounds[i]);
  }
}

TEST(Gradients, PairsOfAHeadAreThinnedOutEvenly) {
  const at::Tensor s = at::rand({400, 400}, at::kDouble).add_(1);
  const LinearGradients found = linear_gradients(shares(s), s);
  EXPECT_LE(found.bounds.size(), 65536);
  EXPECT_GE(found.bounds.size(), 50000);
}

TEST(Gradients, WithoutAnyScoreThereIsNoBound) {
  const LinearGradients found = linear_gradients(at::zeros({3, 3}), at::zeros({3, 3}));
  EXPECT_TRUE(std::isnan(found.bound));
  EXPECT_TRUE(found.bounds.empty());
}

// The largest |dL/ds| of a norm layer, from the gradient of its normalised output by autograd of
// the plain form, Norm(S V).
double largest_by_plain_form(const AttentionRecord& record, double eps) {
  const at::Tensor q = record.inside.scored_q.squeeze(0).transpose(0, 1);  // [heads, time, width]
  const at::Tensor k = record.inside.scored_k.squeeze(0).transpose(0, 1);
  const at::Tensor v = record.inside.v.detach().squeeze(0).transpose(0, 1);
  const at::Tensor scores =
      at::matmul(q, k.transpose(1, 2)).tril().detach().clone().requires_grad_();
  const at::Tensor merged = at::matmul(scores, v).transpose(0, 1).flatten(1);
  EXPECT_LT(test::relative_error(merged.detach(), record.inside.merged.detach().squeeze(0)), 1e-4);
  const at::Tensor normed = merged / (merged.square().mean(-1, true) + eps).sqrt();
  normed.backward(record.normed.grad().squeeze(0));
  return scores.grad().tril().abs().max().item<double>();
}

TEST(Gradients, OfNormAttentionAreThoseOfThePlainFormAndBelowTheBound) {
  const ModelConfig config = test::small_config(ModelVariant::t2);
  const Subject subject = test::make_subject(config);
  const std::vector<LayerGradients> layers = measure_gradients(subject, test::everything(config));
  ASSERT_EQ(layers.size(), 3);
  EXPECT_EQ(layers[0].quantity, "dp/ds");
  EXPECT_EQ(layers[0].bound, 0.25);
  EXPECT_GT(layers[0].largest, 0);
  EXPECT_LE(layers[0].largest, 0.25);
  for (const std::size_t layer : {1, 2}) {
    double largest = 0;
    double c1 = 0;
    double c2 = 0;
    for (const Window& window : subject.windows) {
      const auto records = record_pass(*subject.model, window, true);
      const AttentionRecord& record = records[layer].attentions.at(0);
      largest = std::max(largest, largest_by_plain_form(record, config.norm_eps));
      for (std::int64_t i = 0; i < 20; ++i) {
        c1 = std::max(c1, record.normed.grad()[0][i].norm().item<double>());
        c2 = std::max(c2, record.inside.v.detach()[0][i].norm().item<double>());
      }
    }
    EXPECT_EQ(layers[layer].quantity, "dL/ds");
    EXPECT_NEAR(layers[layer].largest, largest, 1e-3 * largest);
    EXPECT_NEAR(layers[layer].c1, c1, 1e-5 * c1);
    EXPECT_NEAR(layers[layer].c2, c2, 1e-5 * c2);
    EXPECT_NEAR(layers[layer].bound, 3 * c1 * c2 * 24 / (2 * std::sqrt(config.norm_eps)),
                1e-4 * layers[layer].bound);
    EXPECT_GT(largest, 0);
    EXPECT_LE(largest, layers[layer].bound);
  }
}

TEST(Gradients, OfReluScoresCountAsUnnormalised) {
  const ModelConfig config = test::small_config(ModelVariant::t1);
  const auto layers = measure_gradients(test::make_subject(config), test::everything(config));
  EXPECT_EQ(layers[0].weighting, Weighting::unnormalised);
  EXPECT_GT(layers[0].largest, 0);
  EXPECT_LE(layers[0].largest, layers[0].bound);
}

TEST(Gradients, ARecordedPassChangesNeitherTheModelNorItsGradients) {
  const ModelConfig config = test::small_config(ModelVariant::t2);
  const Subject subject = test::make_subject(config, 1);
  const at::Tensor before = subject.model->forward(subject.windows[0].inputs, {}).detach().clone();
  (void)record_pass(*subject.model, subject.windows[0], true);
  EXPECT_TRUE(at::equal(before, subject.model->forward(subject.windows[0].inputs, {}).detach()));
  for (const auto& parameter : subject.model->parameters()) {
    EXPECT_TRUE(!parameter.grad().defined() || parameter.grad().abs().max().item<double>() == 0);
  }
}

TEST(Gradients, HeadsThatAreNotThereAreRefused) {
  const ModelConfig config = test::small_config(ModelVariant::t2);
  EXPECT_THROW((void)measure_gradients(test::make_subject(config), {.layers = {0}, .heads = {2}}),
               UserError);
}

}  // namespace
}  // namespace transnormer
