// Where no gradients are wanted the operators leave autograd out: their values must not change.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "ops/activation.h"
#include "ops/attention/joint.h"
#include "ops/attention/lrpe.h"
#include "ops/norm.h"
#include "ops/reference.h"
#include "ops/residual.h"
#include "ops/weights/embedding.h"
#include "ops/weights/few_rows.h"
#include "ops/weights/linear.h"

namespace transnormer::ops {
namespace {

struct Operator {
  std::string name;
  std::function<std::vector<at::Tensor>()> run;
};

std::vector<Operator> operators() {
  const at::Tensor x = leaf(normal({2, 13, 3, 8}, 1)), rows = leaf(normal({26, 24}, 2));
  const at::Tensor gain = leaf(normal({24}, 3)), bias = leaf(normal({24}, 4));
  const at::Tensor theta = leaf(normal({4}, 5)), unit = at::full({8}, 0.35355339);
  const at::Tensor weight = leaf(normal({7, 24}, 6)), half = leaf(normal({7, 12}, 7));
  const at::Tensor tokens = at::arange(6).view({2, 3});
  const Drop drop{.p = 0.25, .key = {1, 2, 3, 4, 5}};
  return {
      {"srms_norm", [=] { return std::vector{srms_norm(rows, 1e-6, at::kBFloat16)}; }},
      {"rms_norm", [=] { return std::vector{rms_norm(rows, gain, 1e-6, at::kFloat)}; }},
      {"layer_norm", [=] { return std::vector{layer_norm(rows, gain, bias, 1e-6, at::kFloat)}; }},
      {"gated", [=] { return std::vector{gated(rows, Activation::silu)}; }},
      {"feature_map", [=] { return std::vector{feature_map(rows, FeatureMap::elu)}; }},
      {"residual", [=] { return std::vector{residual(rows, rows * 2, drop)}; }},
      {"residual_srms_norm",
       [=] {
         const StreamAndNorm made = residual_srms_norm(rows, rows * 2, drop, 1e-6, at::kFloat);
         const StreamAndNorm first = residual_srms_norm(rows, {}, {}, 1e-6, at::kFloat);
         return std::vector{made.stream, made.normed, first.stream, first.normed};
       }},
      {"lrpe", [=] { return std::vector{lrpe(x, theta, unit, 5)}; }},
      {"split", [=] { return ops::split(rows, 3); }},
      {"scaled_embedding", [=] { return std::vector{scaled_embedding(weight, tokens, 3)}; }},
      {"linear", [=] { return std::vector{linear(rows, weight, {}, at::kBFloat16)}; }},
      {"gated_linear",
       [=] { return std::vector{gated_linear(rows, Activation::gelu, half, {}, at::kFloat)}; }},
  };
}

TEST(GradientMode, ChangesNoValue) {
  for (const Operator& op : operators()) {
    const std::vector<at::Tensor> with = op.run();
    const at::NoGradGuard no_gradients;
    const ProductsAsWithGradients same_products;
    const std::vector<at::Tensor> without = op.run();
    ASSERT_EQ(with.size(), without.size());
    for (std::size_t i = 0; i < with.size(); ++i) {
      EXPECT_TRUE(with[i].requires_grad()) << op.name;
      EXPECT_TRUE(at::equal(with[i], without[i])) << op.name << " output " << i;
    }
  }
}

}  // namespace
}  // namespace transnormer::ops
