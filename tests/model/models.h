// Small models and tokens for the tests of the model.
#pragma once

#include <ATen/ATen.h>

#include <memory>
#include <string>
#include <vector>

#include "model/transnormer.h"

namespace transnormer::test {

inline constexpr std::int64_t kWords = 41;

// Three layers, 24 wide, two heads, blocks of eight.
[[nodiscard]] ModelConfig small_config(ModelVariant variant);

// A config and what to call it in messages.
struct NamedConfig {
  std::string name;
  ModelConfig config;
};

// Every variant, and custom mixtures that switch each part away from its default.
[[nodiscard]] std::vector<NamedConfig> many_configs();

// On the CPU, with initial weights from this seed; 64 learned positions where there are any.
[[nodiscard]] std::shared_ptr<TransNormer> make_model(const ModelConfig& config,
                                                      std::uint64_t seed = 3);

// [batch, time], the same for the same seed.
[[nodiscard]] at::Tensor random_tokens(std::int64_t batch, std::int64_t time,
                                       std::int64_t seed = 1);

// Largest absolute difference over the largest absolute value of `expected`.
[[nodiscard]] double relative_error(const at::Tensor& actual, const at::Tensor& expected);

using NamedGradients = std::vector<std::pair<std::string, at::Tensor>>;

// The gradient of every trainable tensor by name.
[[nodiscard]] NamedGradients gradients(const TransNormer& model);

// Fails unless every gradient is within `tolerance` of what is expected, by norm. Gradients that
// are zero but for rounding (the key bias of softmax shifts all scores of a query alike) are
// measured against the largest of the model.
void expect_close(const NamedGradients& actual, const NamedGradients& expected, double tolerance,
                  const std::string& what);

// Adds the gradients of the summed next-token loss to the model's, and gives the loss.
double accumulate_loss(TransNormer& model, const at::Tensor& tokens, const at::Tensor& targets,
                       const ForwardContext& context);

}  // namespace transnormer::test
