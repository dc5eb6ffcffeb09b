// The model in Python gives our logits; what it cannot be is refused by name.
#include "export/export.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "checkpoint/safetensors.h"
#include "config/load.h"
#include "model/context.h"
#include "model/model_size.h"
#include "model/transnormer.h"
#include "util/error.h"
#include "util/file.h"
#include "util/python.h"
#include "util/temporary_directory.h"

namespace transnormer {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using test::run_python;

constexpr std::int64_t kTokensPerSample = 64;

// Three layers, 24 wide, two heads, blocks of eight, with these keys of the model section instead.
Config config_with(const Json& model) {
  Json config = {{"model",
                  {{"variant", "custom"},
                   {"layers", 3},
                   {"dim", 24},
                   {"heads", 2},
                   {"early", {{"attention", "diag"}, {"block", 8}}}}},
                 {"data", {{"tokens_per_sample", kTokensPerSample}}}};
  config["model"].update(model);
  return parse_config(config.dump(), "test").config;
}

Json diag(const Json& settings = Json::object()) {
  Json json = {{"attention", "diag"}, {"block", 8}};
  json.update(settings);
  return json;
}

Json both(const std::string& attention, const Json& settings = Json::object()) {
  Json json = {{"attention", attention}};
  json.update(settings);
  return {{"early", json}, {"late", json}};
}

// Every variant, every attention that is known with each of its settings, every part.
std::map<std::string, Json> models() {
  const Json transformer = {{"variant", "transformer"}, {"early", {{"attention", "softmax"}}}};
  return {
      {"t2", {{"variant", "t2"}, {"early", diag({{"block", 64}})}}},
      {"t1", {{"variant", "t1"}, {"early", Json::object()}}},
      {"transformer", transformer},
      {"swapped", {{"early", {{"attention", "norm"}}}, {"late", diag()}}},
      {"diag relu", {{"early", diag({{"score", "relu"}, {"output_norm", "layer"}})}}},
      {"diag only", {{"early_layers", 3}, {"layers", 3}}},
      {"softmax with lrpe", both("softmax")},
      {"norm elu, rms", both("norm", {{"kernel", "elu"}, {"output_norm", "rms"}})},
      {"norm relu", both("norm", {{"kernel", "relu"}})},
      {"norm silu, layer", both("norm", {{"kernel", "silu"}, {"output_norm", "layer"}})},
      {"norm exp", both("norm", {{"kernel", "exp"}})},
      {"norm decay, gate", both("norm", {{"decay", "fixed"}, {"gate", "silu"}})},
      {"norm linear gate", both("norm", {{"gate", "linear"}})},
      {"norm sigmoid gate", both("norm", {{"decay", "fixed"}, {"gate", "sigmoid"}})},
      {"linear", both("linear")},
      {"linear relu", both("linear", {{"kernel", "relu"}, {"output_norm", "srms"}})},
      {"linear exp", both("linear", {{"kernel", "exp"}})},
      {"linear elu, undivided",
       both("linear", {{"kernel", "elu"}, {"denominator", false}, {"output_norm", "srms"}})},
      {"linear, wide keys", both("linear", {{"key_dim_factor", 3}})},
      {"linear in a window", both("linear", {{"window", 5}})},
      {"linear exp in a window", both("linear", {{"kernel", "exp"}, {"window", 20}})},
      {"post norm", {{"norm_placement", "post"}}},
      {"post layer norm, embed_norm rms",
       {{"norm_placement", "post"}, {"norm", "layer"}, {"embed_norm", "rms"}}},
      {"rms norm, embed_norm", {{"norm", "rms"}, {"embed_norm", "layer"}, {"norm_eps", 1e-3}}},
      {"learned positions", {{"position", "learned"}}},
      {"no positions, no lrpe", {{"position", "none"}, {"lrpe", false}}},
      {"gelu mlp", {{"ffn", "mlp"}, {"ffn_activation", "gelu"}}},
      {"linear glu", {{"ffn_activation", "none"}, {"ffn_dim", 7}}},
      {"untied, with a bias", {{"tie_embeddings", false}, {"output_bias", true}}},
      {"tied, with a bias, more rows", {{"output_bias", true}, {"vocab_size", 50}}},
      {"one layer, one head", {{"layers", 1}, {"heads", 1}}},
      {"odd number of layers and frequencies", {{"layers", 2}, {"dim", 10}, {"heads", 1}}},
  };
}

std::string dictionary() {
  std::string text;
  for (int i = 0; i < 37; ++i) {
    text += "word" + std::to_string(i) + " 1\n";
  }
  return text;
}

class Export : public ::testing::Test {
 protected:
  // Weights of which none is where it starts: biases and gains too.
  std::shared_ptr<TransNormer> make_model(const Config& config) const {
    auto model =
        std::make_shared<TransNormer>(config.model, model_size(config, tokenizer_.get()), at::kCPU);
    initialize(*model, 3);
    const at::NoGradGuard no_grad;
    double phase = 0;
    for (const NamedTensor& named : named_tensors(*model)) {
      if (named.trainable) {
        const at::Tensor noise = at::arange(named.tensor.numel(), at::kFloat).mul(1.7).add(phase);
        named.tensor.add_(noise.sin().mul(0.05).view(named.tensor.sizes()));
        phase += 1;
      }
    }
    return model;
  }

  fs::path write(const Config& config, const TransNormer& model, const std::string& name) const {
    const auto weights = named_tensors(model);
    return write_export({.config = config, .tokenizer = *tokenizer_, .weights = weights},
                        directory_ / name);
  }

  std::string fault_of(const Json& model) const {
    try {
      const Config config = config_with(model);
      (void)write(config, *make_model(config), "refused");
    } catch (const UserError& error) {
      return error.what();
    }
    return "nothing was thrown";
  }

  test::TemporaryDirectory directory_;
  std::shared_ptr<const Tokenizer> tokenizer_ = parse_tokenizer(dictionary(), "dictionary");
};

TEST_F(Export, LogitsInPythonAreOursInOnePassAndInSteps) {
  const at::NoGradGuard no_grad;
  for (const auto& [name, keys] : models()) {
    SCOPED_TRACE(name);
    const Config config = config_with(keys);
    const auto model = make_model(config);
    // Longer than in training where that can be.
    const std::int64_t time = model->most_positions().value_or(300);
    const at::Tensor tokens = at::arange(2 * time).mul_(7919).remainder_(41).view({2, time});
    ForwardContext context;
    const at::Tensor logits = model->logits(model->forward(tokens, context), context);
    const fs::path path = write(config, *model, name);
    write_safetensors(path / "expected", {{"tokens", tokens}, {"logits", logits}});
  }
  const auto answer = run_python("'" TRANSNORMER_SOURCE_DIR "/tests/export/compare_logits.py' '" +
                                 directory_.path().string() + "'");
  ASSERT_EQ(answer.status, 0) << answer.output;
  const Json errors = Json::parse(answer.output);
  EXPECT_EQ(errors.size(), models().size());
  for (const auto& [name, error] : errors.items()) {
    EXPECT_LT(error.at("pass"), 1e-5) << name;   // of the largest logit
    EXPECT_LT(error.at("steps"), 1e-5) << name;  // read in pieces
  }
}

TEST_F(Export, EveryTensorIsInTheLayoutOfOthers) {
  const Config config = config_with(Json::object());
  const auto model = make_model(config);
  const fs::path path = write(config, *model, "export");
  const std::string bytes = read_file(path / "model.safetensors");
  EXPECT_THAT(bytes.substr(0, 200), ::testing::HasSubstr(R"("__metadata__":{"format":"pt"})"));
  const Json written = Json::parse(read_file(path / "config.json"));
  EXPECT_EQ(written.at("model_type"), "transnormer");
  EXPECT_EQ(written.at("vocab_size"), 41);
  EXPECT_EQ(written.at("early_layers"), 1);
  EXPECT_EQ(written.at("ffn_dim"), 64);
  EXPECT_EQ(written.at("embed_norm"), "none");
  EXPECT_EQ(written.at("bos_token_id"), 2);  // the first input
}

TEST_F(Export, AnAttentionThatPythonDoesNotKnowIsNamed) {
  EXPECT_THAT(fault_of({{"late", {{"attention", "performer"}}}}),
              ::testing::HasSubstr("model.late.attention: \"performer\""));
  EXPECT_THAT(fault_of({{"early", {{"attention", "rela"}}}}),
              ::testing::HasSubstr("model.early.attention: \"rela\""));
  EXPECT_FALSE(fs::exists(directory_ / "refused"));
}

TEST_F(Export, AnAttentionThatNoLayerHasIsNotAskedFor) {
  const Config config = config_with({{"early_layers", 3}, {"late", {{"attention", "performer"}}}});
  EXPECT_TRUE(fs::exists(write(config, *make_model(config), "early only")));
}

TEST_F(Export, AModelThatSeesWhatComesAfterIsRefused) {
  EXPECT_THAT(fault_of({{"causal", false}}), ::testing::HasSubstr("model.causal"));
}

}  // namespace
}  // namespace transnormer
