// What the members of the linear family promise beyond their definitions, which the baselines hold
// them to (tests/model/attention_baseline_test.cpp).
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

#include "config/load.h"
#include "model/attention/registry.h"
#include "model/initializer.h"
#include "util/error.h"

namespace transnormer::test {
namespace {

constexpr std::int64_t kDim = 16;
constexpr std::int64_t kHeads = 2;
constexpr std::int64_t kHeadDim = kDim / kHeads;

AttentionConfig config_of(const std::string& json) {
  return parse_config(R"({"model": {"variant": "custom", "late": )" + json + "}}", "x.json", {})
      .config.model.late;
}

struct Made {
  std::shared_ptr<Attention> attention;
  std::map<std::string, at::Tensor> tensors;
};

void initialize_all(torch::nn::Module& module, const std::string& prefix, std::uint64_t seed) {
  if (auto* leaf = dynamic_cast<Initializable*>(&module)) {
    leaf->initialize(Initializer(seed), prefix);
  }
  for (const auto& child : module.named_children()) {
    initialize_all(*child.value(), prefix + child.key() + ".", seed);
  }
}

Made make(const std::string& json, bool causal = true, std::uint64_t seed = 1) {
  Made made;
  made.attention = make_attention(config_of(json), {.layer = 0,
                                                    .layers = 2,
                                                    .random_key = 0,
                                                    .dim = kDim,
                                                    .heads = kHeads,
                                                    .lrpe = false,
                                                    .causal = causal,
                                                    .max_positions = 300});
  initialize_all(*made.attention, "", seed);
  for (const auto& item : made.attention->named_parameters()) {
    made.tensors[item.key()] = item.value();
  }
  for (const auto& item : made.attention->named_buffers()) {
    made.tensors[item.key()] = item.value();
  }
  return made;
}

ForwardContext context_of(bool causal = true, at::ScalarType compute = at::kFloat) {
  ForwardContext context;
  context.compute = compute;
  context.visibility.causal = causal;
  return context;
}

at::Tensor numbers(std::int64_t time, std::uint64_t seed = 3, double size = 1) {
  return at::randn({1, time, kDim}, at::detail::createCPUGenerator(seed), at::kFloat) * size;
}

// [heads, time, head_dim] of a projection, in double.
at::Tensor projected(const Made& made, const char* name, const at::Tensor& x) {
  const std::string key(name);
  return at::linear(x[0].to(at::kDouble), made.tensors.at(key + ".weight").to(at::kDouble),
                    made.tensors.at(key + ".bias").to(at::kDouble))
      .unflatten(-1, {kHeads, -1})
      .transpose(0, 1)
      .detach();
}

double largest_difference(const at::Tensor& a, const at::Tensor& b) {
  return (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
}

// Queries and keys so long that their scores reach +-50.
void enlarge(const Made& made, double factor) {
  const at::NoGradGuard no_grad;
  for (const char* name : {"q_proj", "k_proj"}) {
    for (const char* part : {".weight", ".bias"}) {
      made.tensors.at(std::string(name) + part).detach().mul_(factor);
    }
  }
}

TEST(TaylorWeights, AreWithinZeroAndTwoBeforeTheirSum) {
  const at::NoGradGuard no_grad;
  const Made made = make(R"({"attention": "taylor"})");
  const at::Tensor x = numbers(50);
  const at::Tensor q = projected(made, "q_proj", x), k = projected(made, "k_proj", x);
  const at::Tensor scores =
      1 + at::matmul(q / q.norm(2, {-1}, true), (k / k.norm(2, {-1}, true)).mT());
  EXPECT_GE(scores.min().item<double>(), 0);
  EXPECT_LE(scores.max().item<double>(), 2);
  const at::Tensor seen = scores.tril();
  const at::Tensor weights = made.attention->weights(x, context_of())[0];
  EXPECT_LT(largest_difference(weights, seen / seen.sum(-1, true)), 1e-6);
  EXPECT_GE(weights.min().item<double>(), -1e-7);
}

// Ptolemy's split and the cosine itself.
TEST(CosformerWeights, AreThoseOfTheCosineItself) {
  const at::NoGradGuard no_grad;
  for (const bool causal : {true, false}) {
    const Made made = make(R"({"attention": "cosformer", "horizon": 300})", causal);
    const at::Tensor x = numbers(120);
    const at::Tensor q = projected(made, "q_proj", x).relu();
    const at::Tensor k = projected(made, "k_proj", x).relu();
    const at::Tensor i = at::arange(120, at::kDouble);
    const at::Tensor cosine = ((i.unsqueeze(1) - i) * (M_PI / 2 / 300)).cos();
    at::Tensor scores = at::matmul(q, k.mT()) * cosine;
    scores = causal ? scores.tril() : scores;
    const at::Tensor expected = scores / scores.sum(-1, true).clamp_min(1e-6);
    EXPECT_LT(largest_difference(made.attention->weights(x, context_of(causal))[0], expected),
              2e-6);
  }
}

TEST(Cosformer, RefusesPositionsBehindItsHorizon) {
  const at::NoGradGuard no_grad;
  const Made made = make(R"({"attention": "cosformer", "horizon": 300})");
  EXPECT_NO_THROW(static_cast<void>(made.attention->forward(numbers(300), context_of(), nullptr)));
  try {
    static_cast<void>(made.attention->forward(numbers(301), context_of(), nullptr));
    FAIL() << "was taken";
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("the horizon is 300 positions"));
  }
}

// Averaged over many draws the error falls as the root of the number of features: by 4 from 64 to
// 1,024 features.
TEST(Performer, NearsSoftmaxAsFeaturesGrow) {
  const at::NoGradGuard no_grad;
  const at::Tensor x = numbers(24, 3, 0.5);
  const auto error_with = [&](int features) {
    double sum = 0;
    constexpr int kDraws = 24;
    for (int draw = 1; draw <= kDraws; ++draw) {
      const Made made =
          make(R"({"attention": "performer", "features": )" + std::to_string(features) + "}", true,
               draw);
      const at::Tensor q = projected(made, "q_proj", x), k = projected(made, "k_proj", x);
      const at::Tensor scores = at::matmul(q, k.mT()) / std::sqrt(double{kHeadDim});
      const at::Tensor hidden = at::ones({24, 24}, at::kBool).triu(1);
      const at::Tensor softmax = scores.masked_fill(hidden, -INFINITY).softmax(-1);
      sum += (made.attention->weights(x, context_of())[0] - softmax).square().sum().item<double>();
    }
    return std::sqrt(sum / kDraws);
  };
  const double few = error_with(64), more = error_with(256), many = error_with(1024);
  EXPECT_NEAR(few / more, 2, 0.4);
  EXPECT_NEAR(more / many, 2, 0.4);
  EXPECT_NEAR(few / many, 4, 1);
}

// Each direction by itself is one of N(0, 1); in blocks they are orthogonal.
TEST(Performer, DrawsOrthogonalDirectionsAndFreshOnesForEachUpdate) {
  const Made made = make(R"({"attention": "performer", "features": 20})");
  const at::Tensor features = made.tensors.at("features");
  EXPECT_EQ(features.sizes(), (at::IntArrayRef{kHeads, 20, kHeadDim}));
  const at::Tensor block = features[0].narrow(0, 0, kHeadDim);
  const at::Tensor products = at::matmul(block, block.mT());
  EXPECT_LT((products - products.diagonal().diag()).abs().max().item<double>(), 1e-5);
  const at::NoGradGuard no_grad;
  ForwardContext context = context_of();
  const at::Tensor fixed = made.attention->forward(numbers(9), context, nullptr);
  context.training = true;
  context.seed = 5;
  std::vector<at::Tensor> drawn;
  for (const std::int64_t update : {1, 2, 1}) {
    context.update = update;
    drawn.push_back(made.attention->forward(numbers(9), context, nullptr));
  }
  EXPECT_TRUE(at::equal(drawn[0], drawn[2]));
  EXPECT_FALSE(at::equal(drawn[0], drawn[1]));
  EXPECT_FALSE(at::equal(drawn[0], fixed));
  context.training = false;
  EXPECT_TRUE(at::equal(made.attention->forward(numbers(9), context, nullptr), fixed));
  EXPECT_FALSE(made.attention->can_be_captured());
  EXPECT_TRUE(make(R"({"attention": "performer", "redraw": false})").attention->can_be_captured());
}

class LargeScores : public testing::TestWithParam<const char*> {};

// In bf16 too the products of large exponents are formed of what is rounded once.
TEST_P(LargeScores, StayExactAndFinite) {
  const bool performer = std::string(GetParam()).find("performer") != std::string::npos;
  for (const bool causal : {true, false}) {
    const Made made = make(GetParam(), causal);
    enlarge(made, performer ? 12 : 30);
    const at::Tensor x = numbers(90);
    at::Tensor q = projected(made, "q_proj", x), k = projected(made, "k_proj", x);
    if (performer) {
      const double scale = std::pow(double{kHeadDim}, -0.25);
      const at::Tensor w = made.tensors.at("features").to(at::kDouble).mT() * scale;
      q = at::matmul(q, w);
      k = at::matmul(k, w) - k.square().sum(-1, true) * (scale * scale / 2);
    }
    EXPECT_GT(q.abs().max().item<double>(), 50);
    EXPECT_GT(k.abs().max().item<double>(), 50);
    at::Tensor logits = (q.unsqueeze(-2) + k.unsqueeze(-3)).logsumexp(-1);
    if (causal) {
      logits = logits.masked_fill(at::ones({90, 90}, at::kBool).triu(1), -INFINITY);
    }
    if (std::string(GetParam()).find("window") != std::string::npos) {
      const at::Tensor i = at::arange(90);
      logits = logits.masked_fill((i.unsqueeze(1) - i).abs() >= 20, -INFINITY);
    }
    const at::Tensor weights = made.attention->weights(x, context_of(causal))[0];
    EXPECT_LT(largest_difference(weights, logits.softmax(-1)), 1e-3);
    EXPECT_LT((weights.sum(-1) - 1).abs().max().item<double>(), 1e-5);
    for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
      made.attention->zero_grad();
      const at::Tensor y = made.attention->forward(x.to(type), context_of(causal, type), nullptr);
      EXPECT_TRUE(y.isfinite().all().item<bool>()) << type;
      torch::autograd::backward({y.to(at::kFloat).square().sum()});
      for (const auto& item : made.attention->named_parameters()) {
        EXPECT_TRUE(item.value().grad().isfinite().all().item<bool>()) << item.key() << type;
      }
      const at::NoGradGuard no_grad;
      const at::Tensor half = made.attention->weights(x.to(type), context_of(causal, type))[0];
      EXPECT_LT((half.sum(-1) - 1).abs().max().item<double>(), 0.02) << type;
      EXPECT_GE(half.min().item<double>(), 0) << type;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Forms, LargeScores,
    testing::Values(R"({"attention": "linear", "kernel": "exp"})",
                    R"({"attention": "linear", "kernel": "exp", "window": 20})",
                    R"({"attention": "performer"})"));

TEST(LinearAttentionSettings, SignedFeaturesNeedNoDenominator) {
  const auto faults = [](const std::string& json) { return faults_of(config_of(json), {}); };
  EXPECT_THAT(faults(R"({"attention": "linear", "kernel": "elu"})"),
              testing::ElementsAre(testing::HasSubstr("kernel: expected \"elu1\", \"relu\" or")));
  EXPECT_THAT(faults(R"({"attention": "linear", "kernel": "silu"})"), testing::SizeIs(1));
  EXPECT_THAT(faults(R"({"attention": "linear", "kernel": "silu", "denominator": false})"),
              testing::IsEmpty());
  EXPECT_THAT(faults(R"({"attention": "linear", "kernel": "exp"})"), testing::IsEmpty());
}

// lambda of the second of two heads in the first of two layers: exp(-2^-8 (1 + 1e-5)).
TEST(NormWithDecay, FadesByTheFactorOfTheHead) {
  const at::NoGradGuard no_grad;
  const Made with = make(R"({"attention": "norm", "decay": "fixed", "output_norm": "none"})");
  const Made without = make(R"({"attention": "norm", "output_norm": "none"})");
  const at::Tensor x = numbers(40);
  const at::Tensor faded = with.attention->weights(x, context_of())[0];
  const at::Tensor plain = without.attention->weights(x, context_of())[0];
  const at::Tensor i = at::arange(40, at::kDouble);
  const at::Tensor steps = (i.unsqueeze(1) - i).clamp_min(0);
  for (const std::int64_t head : {0, 1}) {
    const double slope = std::exp2(-8.0 * static_cast<double>(head + 1) / 2) * (1 + 1e-5);
    const at::Tensor expected = plain[head].to(at::kDouble) * (steps * -slope).exp();
    EXPECT_LT(largest_difference(faded[head], expected),
              1e-5 * expected.abs().max().item<double>());
  }
}

}  // namespace
}  // namespace transnormer::test
