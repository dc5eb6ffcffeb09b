#include "optim/no_decay.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dist/threads.h"
#include "optim/lion.h"
#include "optim/muon.h"
#include "optim/plain_updates.h"
#include "optim/registry.h"

namespace transnormer::test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// As of a model: the biases of two projections lie side by side, sizes leave gaps.
struct Parameters {
  at::Tensor biases = at::full({7}, 2.0);
  std::vector<NamedTensor> all{
      {"embed.weight", at::full({5, 3}, 2.0).set_requires_grad(true)},
      {"layers.0.attn.q_proj.weight", at::full({3, 4}, 2.0).set_requires_grad(true)},
      {"layers.0.attn.q_proj.bias", biases.narrow(0, 0, 3).detach().set_requires_grad(true)},
      {"layers.0.attn.k_proj.bias", biases.narrow(0, 3, 4).detach().set_requires_grad(true)},
      {"layers.0.ffn_norm.weight", at::full({17}, 2.0).set_requires_grad(true)},
  };
};

OptimizerConfig config_of(const OptimizerRule& rule, const std::vector<std::string>& globs) {
  OptimizerConfig config;
  config.rule = rule;
  config.weight_decay = 0.5;
  config.no_decay = globs;
  return config;
}

// Names of those that an update without gradients leaves as they were.
std::vector<std::string> without_decay(const OptimizerRule& rule,
                                       const std::vector<std::string>& globs) {
  const Parameters parameters;
  make_optimizer(parameters.all, config_of(rule, globs))->step(0.1);
  std::vector<std::string> names;
  for (const NamedTensor& parameter : parameters.all) {
    const double value = parameter.tensor.min().item<double>();
    EXPECT_EQ(value, parameter.tensor.max().item<double>()) << parameter.name;
    if (value == 2) {
      names.push_back(parameter.name);
    } else {
      EXPECT_NEAR(value, 2 * (1 - 0.1 * 0.5), 1e-6) << parameter.name;
    }
  }
  return names;
}

TEST(NoDecay, LeavesOutWhatItsGlobsNameAndNothingElseWithEachOptimizer) {
  for (const OptimizerRule& rule :
       {OptimizerRule("adamw"), OptimizerRule("lion"), OptimizerRule("muon")}) {
    SCOPED_TRACE(rule.name());
    EXPECT_THAT(without_decay(rule, {}), IsEmpty());
    EXPECT_THAT(without_decay(rule, {"*.bias"}),
                ElementsAre("layers.0.attn.q_proj.bias", "layers.0.attn.k_proj.bias"));
    EXPECT_THAT(
        without_decay(rule, {"*.k_proj.bias", "*norm*", "embed.*"}),
        ElementsAre("embed.weight", "layers.0.attn.k_proj.bias", "layers.0.ffn_norm.weight"));
    EXPECT_THAT(without_decay(rule, {"*q_proj.weight"}),
                ElementsAre("layers.0.attn.q_proj.weight"));
    EXPECT_THAT(without_decay(rule, {"bias", "layers"}), IsEmpty());  // whole names
  }
}

// The values after some updates, by two processes that share the optimizer.
std::vector<at::Tensor> trained(const OptimizerConfig& config, const dist::Group& shared_by) {
  const Parameters parameters;
  const auto optimizer = make_optimizer(parameters.all, config, shared_by);
  for (int update = 0; update < 5; ++update) {
    for (const NamedTensor& parameter : parameters.all) {
      set_gradient(parameter, update);
    }
    optimizer->step(rate(update));
  }
  std::vector<at::Tensor> values;
  for (const NamedTensor& parameter : parameters.all) {
    values.push_back(parameter.tensor.detach().clone());
  }
  return values;
}

TEST(NoDecay, IsTheSameWhereProcessesShareTheOptimizer) {
  for (const OptimizerRule& rule : {OptimizerRule("adamw"), OptimizerRule("lion")}) {
    const OptimizerConfig config = config_of(rule, {"*.bias", "*norm*"});
    const std::vector<at::Tensor> alone = trained(config, {});
    dist::with_group(3, [&](const dist::Group& group) {
      const std::vector<at::Tensor> shared = trained(config, group);
      for (std::size_t i = 0; i < alone.size(); ++i) {
        EXPECT_TRUE(at::allclose(shared[i], alone[i], 1e-6, 1e-6)) << rule.name() << ' ' << i;
      }
    });
  }
}

TEST(NoDecay, TellsOfAGlobThatMatchesNothingAndWhatWasMeant) {
  const Parameters parameters;
  EXPECT_THAT(idle_globs({"*.bias", "embed.*"}, parameters.all), IsEmpty());
  EXPECT_THAT(idle_globs({"*.bais", "*.bias", "output.*"}, parameters.all),
              ElementsAre(AllOf(HasSubstr("optimizer.no_decay: \"*.bais\" matches no parameter"),
                                HasSubstr("did you mean \"bias\"?")),
                          AllOf(HasSubstr("\"output.*\" matches no parameter"),
                                testing::Not(HasSubstr("did you mean")))));
}

}  // namespace
}  // namespace transnormer::test
