// Names, counts and initial values of a model's tensors.
#include "model/weights.h"

#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "model/footprint.h"
#include "model/initializer.h"
#include "model/models.h"
#include "util/error.h"

namespace transnormer::test {
namespace {

using testing::ElementsAre;

struct Count {
  std::int64_t all = 0;
  std::int64_t trainable = 0;
};

Count count(const ModelConfig& config, std::int64_t words) {
  const TransNormer model(config, {.vocab_size = words, .max_positions = 512}, at::kMeta);
  Count result;
  for (const NamedTensor& named : named_tensors(model)) {
    result.all += named.tensor.numel();
    result.trainable += named.trainable ? named.tensor.numel() : 0;
  }
  return result;
}

// The published setting: the default sizes.
ModelConfig published(ModelVariant variant) {
  ModelConfig config = small_config(variant);
  const ModelConfig defaults;
  config.layers = defaults.layers;
  config.dim = defaults.dim;
  config.heads = defaults.heads;
  return config;
}

TEST(Parameters, AreAsManyAsPublished) {
  for (const auto variant : {ModelVariant::t1, ModelVariant::t2}) {
    EXPECT_EQ(count(published(variant), 267744).all, 155988540);
    EXPECT_EQ(count(published(variant), 267744).trainable, 155988156);
    EXPECT_EQ(count(published(variant), 50265).all, 44639292);
  }
  EXPECT_EQ(count(published(ModelVariant::transformer), 267744).all, 156000256);
}

TEST(Parameters, AreEstimatedWithoutAModel) {
  for (const auto& [name, config] : many_configs()) {
    ModelConfig large = config;
    large.dim = 384;
    const auto exact = static_cast<double>(count(large, 5000).all);
    EXPECT_NEAR(estimate_parameters(large, {.vocab_size = 5000, .max_positions = 512}), exact,
                0.003 * exact)
        << name;
  }
}

std::vector<std::string> names(const ModelConfig& config) {
  std::vector<std::string> result;
  for (const NamedTensor& named : named_tensors(*make_model(config))) {
    result.push_back(named.name + (named.trainable ? "" : " (frozen)"));
  }
  return result;
}

TEST(NamedTensors, CarryTheNamesOfCheckpoints) {
  ModelConfig config = small_config(ModelVariant::t2);
  config.layers = 1;
  EXPECT_THAT(
      names(config),
      ElementsAre("embed.weight", "layers.0.attn.q_proj.weight", "layers.0.attn.q_proj.bias",
                  "layers.0.attn.k_proj.weight", "layers.0.attn.k_proj.bias",
                  "layers.0.attn.v_proj.weight", "layers.0.attn.v_proj.bias",
                  "layers.0.attn.out_proj.weight", "layers.0.attn.out_proj.bias",
                  "layers.0.attn.lrpe.theta", "layers.0.attn.lrpe.reflect (frozen)",
                  "layers.0.ffn.gate_proj.weight", "layers.0.ffn.gate_proj.bias",
                  "layers.0.ffn.up_proj.weight", "layers.0.ffn.up_proj.bias",
                  "layers.0.ffn.down_proj.weight", "layers.0.ffn.down_proj.bias"));
}

TEST(NamedTensors, NameThePartsThatOnlySomeModelsHave) {
  ModelConfig config = small_config(ModelVariant::transformer);
  config.layers = 1;
  config.position = PositionKind::learned;
  config.norm = NormKind::rms;
  config.tie_embeddings = false;
  EXPECT_THAT(names(config), testing::IsSupersetOf(
                                 {"position.weight", "layers.0.attn_norm.weight",
                                  "layers.0.ffn_norm.weight", "layers.0.ffn.fc1.weight",
                                  "layers.0.ffn.fc2.bias", "final_norm.weight", "output.weight"}));
  config.norm_placement = NormPlacement::post;
  config.norm = NormKind::layer;
  EXPECT_THAT(names(config), testing::IsSupersetOf({"embed_norm.weight", "embed_norm.bias"}));
  EXPECT_THAT(names(config), testing::Not(testing::Contains("final_norm.weight")));
}

at::Tensor named(const TransNormer& model, const std::string& name) {
  for (const NamedTensor& tensor : named_tensors(model)) {
    if (tensor.name == name) {
      return tensor.tensor.detach();
    }
  }
  throw std::out_of_range(name);
}

// A model wide enough for its statistics to mean something: two layers, the first `early`.
std::shared_ptr<TransNormer> wide(ModelVariant variant) {
  ModelConfig config = small_config(variant);
  config.layers = 2;
  config.dim = 96;
  config.early_layers = 1;
  return make_model(config);
}

// Uniform within +-bound: reaches close to it, never past it, and has its deviation.
void expect_uniform(const at::Tensor& tensor, double bound, const std::string& what) {
  EXPECT_LE(tensor.abs().max().item<double>(), bound * (1 + 1e-6)) << what;
  EXPECT_GT(tensor.abs().max().item<double>(), 0.9 * bound) << what;
  if (tensor.numel() > 1000) {
    EXPECT_NEAR(tensor.std().item<double>(), bound / std::sqrt(3.0), 0.02 * bound) << what;
    EXPECT_NEAR(tensor.mean().item<double>(), 0, 0.05 * bound) << what;
  }
}

TEST(InitialWeights, AreThePublishedOnes) {
  const auto model = wide(ModelVariant::t2);
  const double xavier = std::sqrt(6.0 / (96 + 96));
  const double framework = 1 / std::sqrt(96.0);
  const at::Tensor embedding = named(*model, "embed.weight");
  EXPECT_NEAR(embedding.std().item<double>(), 1 / std::sqrt(96.0), 0.003);
  for (const std::string part : {"q_proj", "k_proj", "v_proj"}) {
    expect_uniform(named(*model, "layers.0.attn." + part + ".weight"), xavier, "diag " + part);
    expect_uniform(named(*model, "layers.1.attn." + part + ".weight"), xavier * std::sqrt(0.5),
                   "norm " + part);
    expect_uniform(named(*model, "layers.0.attn." + part + ".bias"), framework, part);
  }
  for (const std::string layer : {"layers.0.", "layers.1."}) {
    expect_uniform(named(*model, layer + "attn.out_proj.weight"), xavier, "out");
    EXPECT_EQ(named(*model, layer + "attn.out_proj.bias").abs().max().item<double>(), 0);
    expect_uniform(named(*model, layer + "ffn.gate_proj.weight"), framework, "gate");
    expect_uniform(named(*model, layer + "ffn.up_proj.bias"), framework, "up bias");
    expect_uniform(named(*model, layer + "ffn.down_proj.weight"), 1 / std::sqrt(256.0), "down");
  }
}

TEST(InitialWeights, OfTheSoftmaxBaselineAreThePublishedOnes) {
  const auto model = wide(ModelVariant::transformer);
  const double xavier = std::sqrt(6.0 / (96 + 96));
  expect_uniform(named(*model, "layers.0.attn.k_proj.weight"), xavier * std::sqrt(0.5), "k");
  expect_uniform(named(*model, "layers.0.attn.out_proj.weight"), xavier, "out");
  expect_uniform(named(*model, "layers.0.ffn.fc1.weight"), 1 / std::sqrt(96.0), "fc1");
  expect_uniform(named(*model, "layers.0.ffn.fc2.weight"), 1 / std::sqrt(384.0), "fc2");
  expect_uniform(named(*model, "layers.0.ffn.fc2.bias"), 1 / std::sqrt(384.0), "fc2 bias");
  EXPECT_TRUE(at::equal(named(*model, "final_norm.weight"), at::ones({96})));
  EXPECT_TRUE(at::equal(named(*model, "layers.1.ffn_norm.bias"), at::zeros({96})));
}

TEST(InitialWeights, OfLrpeAreAnglesAndARandomUnitVector) {
  const auto model = wide(ModelVariant::t2);
  const at::Tensor theta = named(*model, "layers.1.attn.lrpe.theta");
  for (std::int64_t i = 0; i < theta.numel(); ++i) {
    EXPECT_NEAR(theta[i].item<double>(), std::pow(10000.0, -2.0 * static_cast<double>(i) / 48),
                1e-7);
  }
  const at::Tensor first = named(*model, "layers.0.attn.lrpe.reflect");
  const at::Tensor second = named(*model, "layers.1.attn.lrpe.reflect");
  EXPECT_NEAR(first.norm().item<double>(), 1, 1e-6);
  EXPECT_LT(at::dot(first, second).abs().item<double>(), 0.6);
}

TEST(InitialWeights, AreAFunctionOfSeedAndName) {
  const auto one = make_model(small_config(ModelVariant::t2), 7);
  const auto same = make_model(small_config(ModelVariant::t2), 7);
  const auto other = make_model(small_config(ModelVariant::t2), 8);
  const auto embedding = [](const auto& model) { return named(*model, "embed.weight"); };
  EXPECT_TRUE(at::equal(embedding(one), embedding(same)));
  EXPECT_FALSE(at::equal(embedding(one), embedding(other)));
  EXPECT_FALSE(at::equal(named(*one, "layers.0.attn.q_proj.weight"),
                         named(*one, "layers.0.attn.k_proj.weight")));
}

TEST(InitialWeights, DoNotDependOnTheThreads) {
  const at::Tensor many = at::empty({301, 1001});
  const at::Tensor one = at::empty({301, 1001});
  const int threads = at::get_num_threads();
  at::set_num_threads(3);
  Initializer(5).normal(many, "a", 1);
  at::set_num_threads(1);
  Initializer(5).normal(one, "a", 1);
  at::set_num_threads(threads);
  EXPECT_TRUE(at::equal(many, one));
}

TEST(InitialWeights, AreNormalWhereTheyShouldBe) {
  const at::Tensor x = at::empty({400001});
  Initializer(9).normal(x, "x", 2);
  EXPECT_NEAR(x.mean().item<double>(), 0, 0.015);
  EXPECT_NEAR(x.std().item<double>(), 2, 0.01);
  EXPECT_NEAR((x / 2).pow(4).mean().item<double>(), 3, 0.05);
  EXPECT_NEAR((x.abs() < 2).to(at::kFloat).mean().item<double>(), 0.6827, 0.004);
  EXPECT_LT(at::abs((x.slice(0, 0, -1) * x.slice(0, 1)).mean()).item<double>(), 0.03);
}

TEST(Weights, ThatAreNotFiniteAreRefusedByNameOfTheTensor) {
  TransNormer model(small_config(ModelVariant::t2), {.vocab_size = 30, .max_positions = 16},
                    at::kCPU);
  initialize(model, 1);
  EXPECT_TRUE(has_finite_weights(model));
  EXPECT_NO_THROW(require_finite_weights(model, "some/checkpoint"));
  const NamedTensor last = named_tensors(model).back();
  for (const float value :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
        -std::numeric_limits<float>::infinity()}) {
    {
      const at::NoGradGuard no_grad;
      last.tensor.flatten()[0] = value;
    }
    EXPECT_FALSE(has_finite_weights(model)) << value;
    try {
      require_finite_weights(model, "some/checkpoint");
      FAIL() << value;
    } catch (const UserError& error) {
      EXPECT_THAT(error.what(), testing::AllOf(testing::StartsWith("some/checkpoint: "),
                                               testing::HasSubstr(last.name)));
    }
  }
}

}  // namespace
}  // namespace transnormer::test
