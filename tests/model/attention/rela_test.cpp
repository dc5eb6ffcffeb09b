#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "config/load.h"
#include "model/attention/against_loops.h"
#include "model/models.h"
#include "util/error.h"

namespace transnormer::test {
namespace {

constexpr std::int64_t kDim = 24, kTime = 19;
constexpr double kEps = 1e-3;
constexpr const char* kGated = R"({"attention": "rela"})";
constexpr const char* kPlain = R"({"attention": "rela", "gated": false})";

std::shared_ptr<Attention> make(const char* json, bool lrpe, double dropout = 0) {
  return make_started(
      json, {.dim = kDim, .heads = 2, .lrpe = lrpe, .norm_eps = kEps, .dropout = dropout});
}

// Sums of positive scores, token by token.
at::Tensor positive_scores(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           bool causal) {
  std::vector<at::Tensor> outputs;
  for (std::int64_t i = 0; i < q.size(0); ++i) {
    const std::int64_t end = causal ? i + 1 : q.size(0);
    const at::Tensor scores = at::relu(at::mv(k.slice(0, 0, end), q[i]) / std::sqrt(12.0));
    outputs.push_back(at::mv(v.slice(0, 0, end).t(), scores));
  }
  return at::stack(outputs);
}

Plain plain(Attention& attention, bool causal) {
  return {.head = [=](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                      const Place&) { return positive_scores(q, k, v, causal); },
          .finish =
              [&attention](const at::Tensor& x) {
                const at::Tensor n = x / at::sqrt(x.square().mean(-1, true) + kEps);
                const auto parameters = attention.named_parameters();
                const at::Tensor gained = parameters["scale"] * n;
                return parameters.contains("gate") ? gained * at::sigmoid(parameters["gate"] * x)
                                                   : gained;
              }};
}

TEST(Rela, AgreesWithLoopsForwardAndBackward) {
  for (const char* json : {kGated, kPlain}) {
    for (const bool causal : {true, false}) {
      for (const bool lrpe : {true, false}) {
        const auto attention = make(json, lrpe);
        for (const auto& [name, context] : contexts(kTime, causal)) {
          expect_as_plain(*attention, plain(*attention, causal), some_input(3, kTime, kDim),
                          context, std::string(json) + name + (causal ? ", causal" : ""));
        }
      }
    }
  }
}

TEST(Rela, SeesNeitherTheFutureNorPadding) {
  const auto attention = make(kGated, true);
  expect_causal(*attention, kTime, kDim);
  for (const auto& [name, context] : {contexts(kTime, true)[0], contexts(kTime, false)[0]}) {
    expect_padding_unseen(*attention, context, kTime, kDim);
  }
}

TEST(Rela, DecodesAsItReadsWholeSequences) {
  expect_decodes(*make(kGated, true), 41, kDim);
  expect_decodes(*make(kPlain, false), 41, kDim);
}

TEST(Rela, IsCloseInHalfPrecision) {
  expect_half_close(*make(kGated, true), {}, kTime, kDim);
}

// Each score is dh = 24 and each output 24 / sqrt(24) * n: beyond half's 65504 before the norm.
TEST(Rela, InHalfStaysRightWhereItsSumsAreBeyondHalf) {
  const auto attention = make_started(kPlain, {.dim = kDim, .heads = 1});
  auto parameters = attention->named_parameters();
  {
    const at::NoGradGuard no_gradients;
    for (const auto& parameter : parameters) {
      parameter.value().zero_();
    }
    if (parameters.contains("scale")) {
      parameters["scale"].fill_(1);
    }
    parameters["q_proj.bias"].fill_(8);
    parameters["k_proj.bias"].fill_(8);
    parameters["v_proj.bias"].fill_(1);
    parameters["out_proj.weight"].copy_(at::eye(kDim));
  }
  const at::Tensor x = at::ones({1, 300, kDim});
  const at::Tensor y = attention->forward(x, {.compute = at::kHalf}, nullptr);
  EXPECT_LT((y.to(at::kFloat) - 1).abs().max().item<double>(), 1e-3);
  const auto state = attention->make_state(1);
  EXPECT_TRUE(at::equal(attention->forward(x, {.compute = at::kHalf}, state.get()), y));
}

TEST(Rela, DropsWeightsByTheirPlace) {
  for (const bool causal : {true, false}) {
    const ForwardContext context = contexts(kTime, causal)[0].second;
    const auto attention = make(kGated, true, 0.3);
    expect_drops_by_place(*attention, context, kTime, kDim);
    expect_drops_share(*attention, context, 0.3, 1, kTime, kDim);
  }
}

TEST(Rela, HasAGainAndAGateThatStartAtOneOrTheGainAlone) {
  const auto count = [](const Attention& attention) {
    std::int64_t numbers = 0;
    for (const at::Tensor& parameter : attention.parameters()) {
      numbers += parameter.numel();
    }
    return numbers;
  };
  const auto gated = make(kGated, false);
  EXPECT_EQ(count(*gated), 4 * (kDim * kDim + kDim) + 2 * kDim);
  EXPECT_EQ(count(*make(kPlain, false)), 4 * (kDim * kDim + kDim) + kDim);
  dynamic_cast<Initializable&>(*gated).initialize(Initializer(1), "");
  EXPECT_TRUE(at::equal(gated->named_parameters()["scale"], at::ones({kDim})));
  EXPECT_TRUE(at::equal(gated->named_parameters()["gate"], at::ones({kDim})));
  EXPECT_EQ(gated->groups().size(), 5U);
}

TEST(Rela, RefusesWhatIsNoFlag) {
  try {
    static_cast<void>(attention_config(R"({"attention": "rela", "gated": 2})"));
    FAIL() << "was taken";
  } catch (const UserError& error) {
    ASSERT_EQ(error.faults().size(), 1U);
    EXPECT_THAT(error.faults()[0], testing::HasSubstr("model.early.gated: expected true or false"));
  }
}

}  // namespace
}  // namespace transnormer::test
