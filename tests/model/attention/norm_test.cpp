#include "model/attention/norm.h"

#include <gtest/gtest.h>

#include "model/attention/registry.h"
#include "model/models.h"

namespace transnormer::test {
namespace {

std::shared_ptr<Attention> make_norm_attention(NormKind output_norm) {
  auto attention = make_attention(NormAttentionConfig{.output_norm = output_norm},
                                  AttentionSettings{.dim = 24, .heads = 2});
  at::NoGradGuard no_grad;
  for (const auto& tensor : attention->parameters()) {
    tensor.copy_(at::sin(at::arange(tensor.numel()).view_as(tensor) * 1.7));
  }
  return attention;
}

at::Tensor inputs(std::int64_t time) {
  return at::cos(at::arange(time * 24).view({1, time, 24}) * 0.37);
}

// One fp32 matrix of head_dim x head_dim a head and sequence, however many tokens went by.
TEST(NormAttention, KeepsOneMatrixAHead) {
  at::NoGradGuard no_grad;
  const auto attention = make_norm_attention(NormKind::srms);
  const auto state = attention->make_state(1);
  EXPECT_EQ(state->bytes(), 2 * 12 * 12 * 4);
  const at::Tensor y = attention->forward(inputs(300), {.compute = at::kBFloat16}, state.get());
  EXPECT_EQ(y.scalar_type(), at::kBFloat16);
  EXPECT_EQ(state->bytes(), 2 * 12 * 12 * 4);
}

// Without LRPE: sums over the past without a denominator, so values twice as large and keys as they
// were give outputs twice as large, unless the output is normalised.
TEST(NormAttention, NormalisesItsOutputInsteadOfItsScores) {
  at::NoGradGuard no_grad;
  for (const auto kind : {NormKind::none, NormKind::srms}) {
    const auto attention = make_norm_attention(kind);
    auto parameters = attention->named_parameters();
    parameters["out_proj.bias"].zero_();
    const at::Tensor once = attention->forward(inputs(19), {}, nullptr);
    parameters["v_proj.weight"].mul_(2);
    parameters["v_proj.bias"].mul_(2);
    const at::Tensor twice = attention->forward(inputs(19), {}, nullptr);
    EXPECT_LT(relative_error(twice, kind == NormKind::none ? 2 * once : once), 1e-5);
  }
}

// The sums before the norm reach 131,072 here, twice what half holds; behind it they are 1.
TEST(NormAttention, InHalfStaysRightWhereItsSumsAreBeyondHalf) {
  const auto attention =
      make_attention(NormAttentionConfig{.kernel = FeatureMap::elu1, .output_norm = NormKind::srms},
                     AttentionSettings{.dim = 64, .heads = 1});
  auto parameters = attention->named_parameters();
  {
    at::NoGradGuard no_grad;
    for (const auto& parameter : parameters) {
      parameter.value().zero_();
    }
    parameters["q_proj.bias"].fill_(1);  // phi(1) = 2
    parameters["k_proj.bias"].fill_(1);
    parameters["v_proj.bias"].fill_(1);
    parameters["out_proj.weight"].copy_(at::eye(64));
  }
  const at::Tensor x = at::ones({1, 512, 64});
  const ForwardContext half{.compute = at::kHalf};
  const at::Tensor y = attention->forward(x, half, nullptr);
  EXPECT_LT((y.to(at::kFloat) - 1).abs().max().item<double>(), 1e-3);
  const auto state = attention->make_state(1);
  EXPECT_TRUE(at::equal(attention->forward(x, half, state.get()), y));
  y.to(at::kFloat).square().sum().backward();
  for (const auto& parameter : parameters) {
    EXPECT_TRUE(at::isfinite(parameter.value().grad()).all().item<bool>()) << parameter.key();
  }
  EXPECT_NEAR(parameters["out_proj.bias"].grad()[0].item<double>(), 2 * 512, 1);
}

}  // namespace
}  // namespace transnormer::test
