// The models against scripts/make_baselines.py: an independent implementation in plain PyTorch,
// quadratic and in double precision.
#include "model/baseline.h"

#include <gtest/gtest.h>

#include "model/models.h"
#include "model/weights.h"

namespace transnormer::test {
namespace {

constexpr double kTolerance = 1e-4;

struct Case {
  const char* name;
  ModelVariant variant;
};

class Baseline : public testing::TestWithParam<Case> {
 protected:
  Baseline() : held(read_baseline(GetParam().name)) {
    ModelConfig config = small_config(GetParam().variant);
    config.dim = 20;
    config.dropout = 0;
    model = std::make_shared<TransNormer>(config, ModelSize{.vocab_size = 41}, at::kCPU);
    at::NoGradGuard no_grad;
    for (const NamedTensor& named : named_tensors(*model)) {
      named.tensor.copy_(held.at("weight/" + named.name));
    }
  }

  std::map<std::string, at::Tensor> held;
  std::shared_ptr<TransNormer> model;
};

TEST_P(Baseline, HoldsExactlyTheTensorsOfTheModel) {
  std::vector<std::string> ours;
  for (const NamedTensor& named : named_tensors(*model)) {
    ours.push_back("weight/" + named.name);
  }
  std::sort(ours.begin(), ours.end());
  std::vector<std::string> theirs;
  for (const auto& [name, tensor] : held) {
    if (name.starts_with("weight/")) {
      theirs.push_back(name);
    }
  }
  EXPECT_EQ(ours, theirs);
}

TEST_P(Baseline, LogitsAgree) {
  for (const std::string length : {"odd", "whole"}) {
    const at::Tensor hidden = model->forward(held.at(length + "/tokens"), {});
    EXPECT_LT(relative_error(model->logits(hidden, {}), held.at(length + "/logits")), kTolerance)
        << length;
  }
}

TEST_P(Baseline, LossAndEveryGradientAgree) {
  const at::Tensor targets = held.at("odd/targets");
  const double tokens = static_cast<double>(targets.numel());
  const double loss = accumulate_loss(*model, held.at("odd/tokens"), targets, {}) / tokens;
  EXPECT_NEAR(loss, held.at("odd/loss").item<double>(), 1e-5);
  NamedGradients actual = gradients(*model);
  NamedGradients expected;
  for (auto& [name, gradient] : actual) {
    gradient = gradient / tokens;
    expected.emplace_back(name, held.at("gradient/" + name));
  }
  expect_close(actual, expected, kTolerance, GetParam().name);
}

INSTANTIATE_TEST_SUITE_P(Models, Baseline,
                         testing::Values(Case{"t1", ModelVariant::t1}, Case{"t2", ModelVariant::t2},
                                         Case{"transformer", ModelVariant::transformer}),
                         [](const auto& chosen) { return std::string(chosen.param.name); });

}  // namespace
}  // namespace transnormer::test
