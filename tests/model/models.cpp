#include "model/models.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "config/variant.h"
#include "model/attention/diag.h"
#include "model/attention/norm.h"
#include "model/weights.h"
#include "ops/loss/linear_cross_entropy.h"

namespace transnormer::test {
namespace {

NamedConfig changed(const std::string& name, const std::function<void(ModelConfig&)>& change) {
  ModelConfig config = small_config(ModelVariant::t2);
  config.variant = ModelVariant::custom;
  change(config);
  return {name, config};
}

}  // namespace

ModelConfig small_config(ModelVariant variant) {
  ModelConfig config;
  config.variant = variant;
  config.layers = 3;
  config.dim = 24;
  config.heads = 2;
  reset_parts(config, variant);
  if (config.early.holds<DiagAttentionConfig>()) {
    config.early.get<DiagAttentionConfig>().block = 8;
  }
  return config;
}

std::vector<NamedConfig> many_configs() {
  return {
      {"t1", small_config(ModelVariant::t1)},
      {"t2", small_config(ModelVariant::t2)},
      {"transformer", small_config(ModelVariant::transformer)},
      changed("norm attention only", [](ModelConfig& c) { c.early_layers = 0; }),
      changed("block attention only", [](ModelConfig& c) { c.early_layers = c.layers; }),
      changed("swapped order", [](ModelConfig& c) { std::swap(c.early, c.late); }),
      changed("softmax with lrpe", [](ModelConfig& c) { c.late = "softmax"; }),
      changed("post norm", [](ModelConfig& c) { c.norm_placement = NormPlacement::post; }),
      changed("post norm with gains",
              [](ModelConfig& c) {
                c.norm_placement = NormPlacement::post;
                c.norm = NormKind::layer;
              }),
      changed("gained norms",
              [](ModelConfig& c) {
                c.norm = NormKind::rms;
                c.early = DiagAttentionConfig{.block = 8, .output_norm = NormKind::layer};
                c.late = NormAttentionConfig{.output_norm = NormKind::rms};
              }),
      changed("learned positions", [](ModelConfig& c) { c.position = PositionKind::learned; }),
      changed("no positions, no lrpe",
              [](ModelConfig& c) {
                c.position = PositionKind::none;
                c.lrpe = false;
              }),
      changed("gelu mlp",
              [](ModelConfig& c) {
                c.ffn = FfnKind::mlp;
                c.ffn_activation = Activation::gelu;
              }),
      changed("linear glu", [](ModelConfig& c) { c.ffn_activation = Activation::none; }),
      changed("relu glu, untied",
              [](ModelConfig& c) {
                c.ffn_activation = Activation::relu;
                c.tie_embeddings = false;
              }),
      changed("one layer, one head",
              [](ModelConfig& c) {
                c.layers = 1;
                c.heads = 1;
              }),
  };
}

std::shared_ptr<TransNormer> make_model(const ModelConfig& config, std::uint64_t seed) {
  // Tensors this small gain nothing from threads, and lose much to them on a busy machine.
  at::set_num_threads(1);
  auto model = std::make_shared<TransNormer>(
      config, ModelSize{.vocab_size = kWords, .max_positions = 64}, at::kCPU);
  initialize(*model, seed);
  return model;
}

at::Tensor random_tokens(std::int64_t batch, std::int64_t time, std::int64_t seed) {
  // A small congruential generator: LibTorch's is not promised to stay the same.
  const at::Tensor tokens = at::empty({batch, time}, at::kLong);
  auto state = static_cast<std::uint64_t>(seed) * 2862933555777941757U + 3037000493U;
  for (std::int64_t i = 0; i < tokens.numel(); ++i) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    tokens.data_ptr<std::int64_t>()[i] = static_cast<std::int64_t>((state >> 33) % kWords);
  }
  return tokens;
}

double relative_error(const at::Tensor& actual, const at::Tensor& expected) {
  const at::Tensor wanted = expected.detach().to(at::kDouble);
  const double difference = (actual.detach().to(at::kDouble) - wanted).abs().max().item<double>();
  return difference / std::max(wanted.abs().max().item<double>(), 1e-30);
}

NamedGradients gradients(const TransNormer& model) {
  NamedGradients result;
  for (const NamedTensor& named : named_tensors(model)) {
    if (named.trainable) {
      result.emplace_back(named.name, named.tensor.grad());
    }
  }
  return result;
}

void expect_close(const NamedGradients& actual, const NamedGradients& expected, double tolerance,
                  const std::string& what) {
  constexpr double kNegligible = 1e-3;
  const auto norm = [](const at::Tensor& x) { return x.to(at::kDouble).norm().item<double>(); };
  double largest = 0;
  for (const auto& [name, gradient] : expected) {
    largest = std::max(largest, norm(gradient));
  }
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const auto& [name, wanted] = expected[i];
    ASSERT_EQ(actual[i].first, name);
    ASSERT_TRUE(actual[i].second.defined()) << what << ", " << name;
    EXPECT_LT(norm(actual[i].second - wanted),
              tolerance * std::max(norm(wanted), kNegligible * largest))
        << what << ", " << name;
  }
}

double accumulate_loss(TransNormer& model, const at::Tensor& tokens, const at::Tensor& targets,
                       const ForwardContext& context) {
  const at::Tensor hidden = model.forward(tokens, context);
  const ops::CrossEntropy loss = ops::linear_cross_entropy(
      hidden.flatten(0, 1), model.output_weight(), targets.flatten(), {.compute = context.compute});
  loss.loss.backward();
  return loss.nll.item<double>();
}

}  // namespace transnormer::test
