// Each attention is trained, stopped, resumed and evaluated as the program does it.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/answer.h"
#include "model/attention/registry.h"
#include "train/small_run.h"

namespace transnormer::test {
namespace {

// Settings that the small samples need.
std::string attention_of(const std::string& name) {
  const std::map<std::string, std::string> settings{
      {"sparse", R"(, "window": 4, "stride": 3)"},
      {"reformer", R"(, "chunk": 4)"},
      {"transformer_ls", R"(, "window": 4, "chunk": 3)"},
      {"flash", R"(, "chunk": 4, "key_dim": 6)"},
      {"flash_quad", R"(, "key_dim": 6)"},
      {"mix", R"(, "first": {"attention": "performer"}, "mode": "sequential")"},
  };
  const auto own = settings.find(name);
  return "{\"attention\": \"" + name + "\"" + (own == settings.end() ? "" : own->second) + "}";
}

std::vector<std::string> causal_names() {
  std::vector<std::string> names;
  for (const auto& [name, kind] : attention_kinds()) {
    if (kind.abilities.causal) {
      names.push_back(name);
    }
  }
  return names;
}

class EveryAttention : public testing::TestWithParam<std::string> {};

TEST_P(EveryAttention, TrainsResumesToTheSameBitsAndIsEvaluated) {
  for (const std::string precision : {"fp32", "bf16"}) {
    const SmallRun runs;
    const std::vector<std::string> sets{"model.early=" + attention_of(GetParam()),
                                        "model.late=" + attention_of(GetParam()),
                                        "train.precision=" + precision};
    const auto with_steps = [&](const char* steps) {
      std::vector<std::string> all = sets;
      all.push_back(std::string("train.steps=") + steps);
      return all;
    };
    ASSERT_EQ(runs.train("whole", with_steps("8")), ExitStatus::done);
    ASSERT_EQ(runs.train("parts", with_steps("3")), ExitStatus::done);
    ASSERT_EQ(runs.train("parts", with_steps("8")), ExitStatus::done);
    expect_same_weights(runs, "whole", "parts", 8);
    expect_same_state(runs, "whole", "parts", 8);

    const std::string checkpoint = runs.checkpoint("whole", 8).string();
    const nlohmann::json scores =
        answer_of(cli::add_eval,
                  {"eval", checkpoint, "--text", (runs.path() / "valid.txt").string(), "--json"});
    EXPECT_GT(scores.at("nll"), 0);
    EXPECT_LT(scores.at("nll"), 6);
  }
}

INSTANTIATE_TEST_SUITE_P(Names, EveryAttention, testing::ValuesIn(causal_names()),
                         [](const auto& chosen) { return chosen.param; });

}  // namespace
}  // namespace transnormer::test
