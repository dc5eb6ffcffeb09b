// What holds for each attention that a config can name, through a whole model of two layers.
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <map>

#include "config/load.h"
#include "model/attention/registry.h"
#include "model/models.h"
#include "model/weights.h"

namespace transnormer::test {
namespace {

constexpr std::int64_t kTime = 37;

// Settings so small that a few tokens meet every branch; what is not named here has its defaults.
const std::multimap<std::string, std::string> kSettings{
    {"diag", R"("block": 8)"},
    {"diag", R"("block": 8, "score": "relu", "output_norm": "srms")"},
    {"flash", R"("chunk": 8, "key_dim": 6)"},
    {"flash_quad", R"("key_dim": 6)"},
    {"linear", R"("denominator": false, "kernel": "silu", "output_norm": "srms")"},
    {"linear", R"("key_dim_factor": 2)"},
    {"linear", R"("kernel": "exp")"},
    {"linear", R"("window": 7)"},
    {"linear", R"("window": 7, "kernel": "exp")"},
    {"linformer", R"("rank": 9)"},
    {"mix", R"("first": {"attention": "diag", "block": 8}, "mode": "sequential")"},
    {"mix", R"("first": {"attention": "performer"}, "second": {"attention": "performer"})"},
    {"norm", R"("decay": "fixed", "gate": "silu")"},
    {"nystromformer", R"("landmarks": 6, "conv": 3)"},
    {"performer", R"("features": 20)"},
    {"reformer", R"("chunk": 4)"},
    {"rela", R"("gated": false)"},
    {"sparse", R"("window": 5, "stride": 4)"},
    {"transformer_ls", R"("window": 6, "chunk": 4)"},
};

struct Case {
  std::string name;
  std::string settings;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const char* name : attentions().names()) {
    all.push_back({name, ""});
    const auto [first, last] = kSettings.equal_range(name);
    for (auto each = first; each != last; ++each) {
      all.push_back({name, each->second});
    }
  }
  return all;
}

// A causal model, or one that sees all.
std::shared_ptr<TransNormer> model_of(const Case& c, bool causal) {
  const std::string attention =
      "{\"attention\": \"" + c.name + "\"" + (c.settings.empty() ? "" : ", " + c.settings) + "}";
  const LoadedConfig loaded = parse_config(
      R"({"model": {"variant": "custom", "layers": 2, "dim": 24, "heads": 2, "dropout": 0,
          "position": "sinusoidal", "early": )" +
          attention + R"(, "late": )" + attention + "}, \"data\": {\"tokens_per_sample\": 40}}",
      "x.json", {});
  ModelConfig config = loaded.config.model;
  config.causal = causal;
  auto model = std::make_shared<TransNormer>(
      config, ModelSize{.vocab_size = kWords, .max_positions = 300}, at::kCPU);
  initialize(*model, 3);
  return model;
}

bool can(const Case& c, bool Abilities::*ability) {
  return abilities(AttentionConfig(c.name.c_str())).*ability;
}

class EveryAttention : public testing::TestWithParam<Case> {};

TEST_P(EveryAttention, SeesNothingOfWhatComesLaterToTheBit) {
  if (!can(GetParam(), &Abilities::causal)) {
    EXPECT_THROW(static_cast<void>(model_of(GetParam(), true)), std::exception);
    return;
  }
  const at::NoGradGuard no_grad;
  const auto model = model_of(GetParam(), true);
  const at::Tensor tokens = random_tokens(2, kTime);
  const at::Tensor whole = model->forward(tokens, {});
  for (std::int64_t t = 1; t < kTime; ++t) {
    at::Tensor other = tokens.clone();
    other.slice(1, t).copy_((tokens.slice(1, t) * 7 + 5).remainder(kWords));
    const at::Tensor y = model->forward(other, {});
    ASSERT_TRUE(at::equal(y.slice(1, 0, t), whole.slice(1, 0, t))) << "before " << t;
  }
}

TEST_P(EveryAttention, SeesAllWhereTheModelIsNotCausal) {
  if (!can(GetParam(), &Abilities::bidirectional)) {
    EXPECT_THROW(static_cast<void>(model_of(GetParam(), false)), std::exception);
    return;
  }
  const at::NoGradGuard no_grad;
  const auto model = model_of(GetParam(), false);
  const at::Tensor tokens = random_tokens(1, 8);
  at::Tensor other = tokens.clone();
  other[0][7] = (other[0][7] + 3).remainder(kWords);
  const at::Tensor change = (model->forward(other, {}) - model->forward(tokens, {})).abs().sum(-1);
  EXPECT_GT(change[0].slice(0, 0, 7).max().item<double>(), 0);
}

TEST_P(EveryAttention, PaddingChangesNothing) {
  const at::NoGradGuard no_grad;
  for (const bool causal : {true, false}) {
    if (!can(GetParam(), causal ? &Abilities::causal : &Abilities::bidirectional)) {
      continue;
    }
    const auto model = model_of(GetParam(), causal);
    const at::Tensor tokens = random_tokens(2, kTime);
    const at::Tensor whole = model->forward(tokens, {});
    for (const std::int64_t before : {std::int64_t{0}, std::int64_t{3}}) {
      for (const std::int64_t behind : {5, 60}) {
        const std::int64_t width = before + kTime + behind;
        // Some of it stands between the tokens.
        const at::Tensor places =
            at::cat({at::arange(before, before + 20), at::arange(before + 22, before + kTime + 2)});
        ForwardContext context;
        context.visibility.padding = at::ones({2, width}, at::kBool).index_fill_(1, places, 0);
        context.positions = at::zeros({2, width}, at::kLong)
                                .index_copy_(1, places, at::arange(kTime).expand({2, kTime}));
        at::Tensor results[2];
        for (const int filling : {0, 1}) {
          at::Tensor padded = random_tokens(2, width, 11 + filling);
          padded.index_copy_(1, places, tokens);
          results[filling] = model->forward(padded, context).index_select(1, places);
          EXPECT_LT(relative_error(results[filling], whole), 2e-5)
              << (causal ? "causal " : "bidirectional ") << before << " " << behind;
        }
        EXPECT_TRUE(at::equal(results[0], results[1]));
      }
    }
  }
}

TEST_P(EveryAttention, DecodesWhatTheWholeGives) {
  if (!can(GetParam(), &Abilities::decodes)) {
    EXPECT_FALSE(can(GetParam(), &Abilities::causal));
    return;
  }
  const at::NoGradGuard no_grad;
  const auto model = model_of(GetParam(), true);
  const at::Tensor tokens = random_tokens(2, 150);
  const at::Tensor whole = model->forward(tokens, {});
  ModelState state = model->make_state(2);
  std::vector<at::Tensor> parts;
  const std::int64_t lengths[] = {70, 1, 1, 13, 1, 40};
  std::int64_t first = 0;
  const auto read = [&](std::int64_t count) {
    parts.push_back(model->forward(tokens.narrow(1, first, count), {}, &state));
    first += count;
  };
  for (const std::int64_t length : lengths) {
    read(length);
  }
  while (first < 150) {
    read(1);
  }
  EXPECT_LT(relative_error(at::cat(parts, 1), whole), 1e-4);
  double expected = 0;
  for (const auto& block : model->blocks()) {
    const StateBytes bytes = block->state_bytes(at::kFloat);
    expected += 2 * (bytes.fixed + 150 * bytes.per_token);
  }
  // Memory of what grows is taken in advance, at most twice of it.
  EXPECT_LE(static_cast<double>(state.bytes()), 2.2 * expected);
  EXPECT_GE(static_cast<double>(state.bytes()), 0.3 * expected);
}

TEST_P(EveryAttention, StaysCloseInHalfPrecisionWithFiniteGradients) {
  for (const bool causal : {true, false}) {
    if (!can(GetParam(), causal ? &Abilities::causal : &Abilities::bidirectional)) {
      continue;
    }
    const auto model = model_of(GetParam(), causal);
    const at::Tensor tokens = random_tokens(2, kTime);
    at::Tensor whole;
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
      model->zero_grad();
      ForwardContext context;
      context.compute = type;
      context.training = true;
      context.seed = 7;
      context.update = 3;
      const at::Tensor y = model->forward(tokens, context);
      if (type == at::kFloat) {
        whole = y.detach();
      }
      // Reformer's buckets change with the last bits of what is hashed.
      if (GetParam().name != "reformer") {
        EXPECT_LT(relative_error(y.detach().to(at::kFloat), whole), 0.15) << type;
      }
      torch::autograd::backward({y.to(at::kFloat).square().mean() * 100});
      for (const auto& [name, gradient] : gradients(*model)) {
        if (!gradient.defined()) {  // of what is counted but idle
          continue;
        }
        ASSERT_TRUE(gradient.isfinite().all().item<bool>()) << name << " " << type;
      }
    }
  }
}

// What is drawn for an update is drawn the same for a layer that is recomputed.
TEST_P(EveryAttention, HasTheSameGradientsWhereLayersAreRecomputed) {
  const bool causal = can(GetParam(), &Abilities::causal);
  const auto model = model_of(GetParam(), causal);
  const at::Tensor tokens = random_tokens(2, kTime);
  NamedGradients plain;
  for (const bool recomputes : {false, true}) {
    model->zero_grad();
    ForwardContext context;
    context.training = true;
    context.seed = 7;
    context.update = 3;
    context.activation_checkpointing = recomputes;
    torch::autograd::backward({model->forward(tokens, context).square().sum()});
    if (!recomputes) {
      for (const auto& [name, gradient] : gradients(*model)) {
        plain.emplace_back(name, gradient.defined() ? gradient.clone() : at::Tensor());
      }
      continue;
    }
    const NamedGradients again = gradients(*model);
    for (std::size_t i = 0; i < plain.size(); ++i) {
      ASSERT_EQ(plain[i].second.defined(), again[i].second.defined()) << plain[i].first;
      EXPECT_TRUE(!plain[i].second.defined() || at::equal(plain[i].second, again[i].second))
          << plain[i].first;
    }
  }
}

// Of each token's weights, none is of a token that it does not see.
TEST_P(EveryAttention, HasWeightsForAnalysis) {
  const bool causal = can(GetParam(), &Abilities::causal);
  const auto model = model_of(GetParam(), causal);
  const at::NoGradGuard no_grad;
  ForwardContext context;
  context.visibility.causal = causal;
  const at::Tensor x = at::randn({2, kTime, 24}, at::detail::createCPUGenerator(4), at::kFloat);
  const at::Tensor weights = model->blocks()[0]->attention_weights(x, context);
  ASSERT_EQ(weights.dim(), 4);
  EXPECT_EQ(weights.size(0), 2);
  EXPECT_EQ(weights.size(2), kTime);
  EXPECT_EQ(weights.size(3), kTime);
  EXPECT_TRUE(weights.isfinite().all().item<bool>());
  EXPECT_GT(weights.abs().sum(-1).mean().item<double>(), 0);
  if (causal) {
    EXPECT_EQ(weights.triu(1).abs().max().item<double>(), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Names, EveryAttention, testing::ValuesIn(cases()), [](const auto& chosen) {
  return chosen.param.name + std::to_string(chosen.index);
});

}  // namespace
}  // namespace transnormer::test
