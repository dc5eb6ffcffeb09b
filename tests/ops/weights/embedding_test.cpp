#include "ops/weights/embedding.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "ops/reference.h"

namespace transnormer::ops {
namespace {

at::Tensor some_tokens() {
  return at::tensor({3, 0, 3, 6, 3, 1}, at::kLong).view({2, 3});
}

// scale times the sum of the gradients of each row's tokens.
std::vector<double> rows_of(const at::Tensor& g, std::size_t words, double scale) {
  const std::vector<double> d = values(g);
  const at::Tensor tokens = some_tokens().flatten();
  const std::size_t dim = d.size() / 6;
  std::vector<double> sum(words * dim);
  for (std::size_t i = 0; i < d.size(); ++i) {
    const auto token = tokens[static_cast<std::int64_t>(i / dim)].item<std::int64_t>();
    sum[static_cast<std::size_t>(token) * dim + i % dim] += scale * d[i];
  }
  return sum;
}

TEST(Embedding, ScalesTheRowsAndAddsTheirGradientsToWhatTheParameterHas) {
  const at::Tensor weight = leaf(normal({7, 130}, 1)), g = normal({2, 3, 130}, 2);
  weight.mutable_grad() = at::ones_like(weight);
  const at::Tensor y = scaled_embedding(weight, some_tokens(), 1.5);
  EXPECT_TRUE(at::equal(y, 1.5 * at::embedding(weight, some_tokens())));
  const at::Tensor own = weight.grad();
  torch::autograd::backward({y}, {g});
  EXPECT_TRUE(weight.grad().is_same(own));
  EXPECT_LT(distance(weight.grad() - 1, rows_of(g, 7, 1.5)), 1e-6);
}

TEST(Embedding, HandsTheGradientOfADerivedWeightOn) {
  const at::Tensor base = leaf(normal({7, 5}, 1)), g = normal({2, 3, 5}, 2);
  torch::autograd::backward({scaled_embedding(base * 2, some_tokens(), 1.5)}, {g});
  EXPECT_LT(distance(base.grad(), rows_of(g, 7, 3)), 1e-6);
}

TEST(Embedding, RefusesATokenThatIsNoRow) {
  EXPECT_THROW((void)scaled_embedding(normal({7, 5}, 1), at::full({1}, 7, at::kLong), 1),
               c10::Error);
}

}  // namespace
}  // namespace transnormer::ops
