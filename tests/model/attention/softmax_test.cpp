#include <gtest/gtest.h>

#include "model/attention/key_value_cache.h"
#include "model/attention/registry.h"
#include "model/models.h"

namespace transnormer::test {
namespace {

// Weights of zero make all scores equal: each token's output is the mean of the values so far.
TEST(SoftmaxAttention, AveragesTheWholePastWhereScoresAreEqual) {
  at::NoGradGuard no_grad;
  const auto attention = make_attention("softmax", AttentionSettings{.dim = 24, .heads = 2});
  for (const auto& item : attention->named_parameters()) {
    item.value().zero_();
  }
  auto parameters = attention->named_parameters();
  parameters["v_proj.weight"].copy_(at::eye(24));
  parameters["out_proj.weight"].copy_(at::eye(24));
  const at::Tensor x = at::cos(at::arange(150 * 24).view({1, 150, 24}) * 0.37);
  const at::Tensor expected = x.cumsum(1) / at::arange(1, 151, at::kFloat).view({1, 150, 1});
  EXPECT_LT(relative_error(attention->forward(x, {}, nullptr), expected), 1e-5);

  const auto state = attention->make_state(1);
  const at::Tensor first = attention->forward(x.narrow(1, 0, 100), {}, state.get());
  const at::Tensor rest = attention->forward(x.narrow(1, 100, 50), {}, state.get());
  EXPECT_LT(relative_error(at::cat({first, rest}, 1), expected), 1e-5);
  EXPECT_EQ(static_cast<const KeyValueCache&>(*state).size(), 150);
}

}  // namespace
}  // namespace transnormer::test
