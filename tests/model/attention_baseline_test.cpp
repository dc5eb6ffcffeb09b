// Each attention against scripts/make_attention_baselines.py: an independent implementation in
// plain PyTorch, in double precision. A file holds the config of its model beside the weights.
#include <gtest/gtest.h>

#include "config/load.h"
#include "model/baseline.h"
#include "model/models.h"
#include "model/weights.h"

namespace transnormer::test {
namespace {

constexpr double kTolerance = 1e-4;

// Those of attentions that there are. The rest of baselines/attentions waits for theirs.
constexpr std::array kNames{"cosformer",
                            "cosformer_bidirectional",
                            "cosformer_horizon",
                            "diag",
                            "diag_bidirectional",
                            "diag_relu",
                            "diag_relu_bidirectional",
                            "efficient",
                            "efficient_bidirectional",
                            "flash",
                            "flash_bidirectional",
                            "flash_quad",
                            "flash_quad_bidirectional",
                            "linear",
                            "linear_bidirectional",
                            "linear_exp",
                            "linear_exp_bidirectional",
                            "linear_plain",
                            "linear_relu",
                            "linear_undivided",
                            "linear_undivided_exp",
                            "linear_wide",
                            "linear_window",
                            "linear_window_bidirectional",
                            "linformer",
                            "mix_others",
                            "mix_parallel",
                            "mix_parallel_bidirectional",
                            "mix_sequential",
                            "mix_sequential_bidirectional",
                            "norm",
                            "norm_bidirectional",
                            "norm_decay",
                            "norm_decay_bidirectional",
                            "norm_decay_gate_silu",
                            "norm_elu",
                            "norm_gate_linear",
                            "norm_gate_sigmoid",
                            "norm_one_layer",
                            "nystromformer",
                            "nystromformer_conv",
                            "nystromformer_short",
                            "performer",
                            "performer_bidirectional",
                            "performer_plain",
                            "pooled",
                            "reformer",
                            "reformer_bidirectional",
                            "rela",
                            "rela_bidirectional",
                            "rela_ungated",
                            "rfa",
                            "rfa_bidirectional",
                            "softmax",
                            "softmax_bidirectional",
                            "sparse",
                            "sparse_bidirectional",
                            "taylor",
                            "taylor_bidirectional",
                            "transformer_ls",
                            "transformer_ls_bidirectional",
                            "transformer_ls_rank",
                            "transformer_ls_rank_bidirectional"};

class AttentionBaseline : public testing::TestWithParam<const char*> {
 protected:
  AttentionBaseline() {
    const BaselineFile file = read_baseline_file(std::string("attentions/") + GetParam());
    held = file.tensors;
    const Config config = parse_config(file.metadata.at("config"), GetParam()).config;
    model = std::make_shared<TransNormer>(
        config.model,
        ModelSize{.vocab_size = kWords, .max_positions = config.data.tokens_per_sample}, at::kCPU);
    at::NoGradGuard no_grad;
    for (const NamedTensor& named : named_tensors(*model)) {
      const auto weight = held.find("weight/" + named.name);
      if (weight != held.end() && weight->second.sizes() == named.tensor.sizes()) {
        named.tensor.copy_(weight->second);
      } else {
        ADD_FAILURE() << named.name << " of these sizes is not held";
      }
    }
  }

  std::map<std::string, at::Tensor> held;
  std::shared_ptr<TransNormer> model;
};

TEST_P(AttentionBaseline, HoldsExactlyTheTensorsOfTheModel) {
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

TEST_P(AttentionBaseline, LogitsAgree) {
  for (const std::string length : {"odd", "whole"}) {
    const at::Tensor hidden = model->forward(held.at(length + "/tokens"), {});
    EXPECT_LT(relative_error(model->logits(hidden, {}), held.at(length + "/logits")), kTolerance)
        << length;
  }
}

TEST_P(AttentionBaseline, LossAndEveryGradientAgree) {
  const at::Tensor targets = held.at("odd/targets");
  const double tokens = static_cast<double>(targets.numel());
  const double loss = accumulate_loss(*model, held.at("odd/tokens"), targets, {}) / tokens;
  EXPECT_NEAR(loss, held.at("odd/loss").item<double>(), 1e-5);
  NamedGradients actual;
  NamedGradients expected;
  for (const auto& [name, gradient] : gradients(*model)) {
    const auto found = held.find("gradient/" + name);
    if (found == held.end()) {  // acts on nothing, and is held for the count of parameters
      EXPECT_TRUE(!gradient.defined() || gradient.count_nonzero().item<std::int64_t>() == 0)
          << name;
      continue;
    }
    ASSERT_TRUE(gradient.defined()) << name;
    actual.emplace_back(name, gradient / tokens);
    expected.emplace_back(name, found->second);
  }
  expect_close(actual, expected, kTolerance, GetParam());
}

INSTANTIATE_TEST_SUITE_P(Attentions, AttentionBaseline, testing::ValuesIn(kNames),
                         [](const auto& chosen) { return std::string(chosen.param); });

}  // namespace
}  // namespace transnormer::test
