// An optimizer that is declared here alone goes through everything that a run does.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "cli/answer.h"
#include "config/fields.h"
#include "optim/registry.h"
#include "train/small_run.h"
#include "train/training_run.h"
#include "util/error.h"

namespace transnormer {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Sets = std::vector<std::string>;

class SignMomentum final : public Optimizer {
 public:
  SignMomentum(const std::vector<NamedTensor>& tensors, double momentum)
      : Optimizer(tensors, {{"momentum"}, {"magnitude", 1}}), momentum_(momentum) {}

 private:
  void apply(const OptimizerUpdate& update) override {
    update.state[0].mul_(momentum_).add_(update.gradients, 1 - momentum_);
    update.state[1].mul_(0.5);
    update.values.sub_(update.state[0].sign() * (1 + update.state[1]), update.lr);
  }
  double momentum_;
};

struct SignMomentumConfig {
  static constexpr const char* kName = "sign_momentum";
  static constexpr const char* kHelp = "The sign of the running mean of the gradient";
  static constexpr std::int64_t kStateSlots = 2;
  double momentum = 0.9;
  void visit(FieldVisitor& visitor) {
    visitor.number({"momentum", "Decay of the running mean", OnResume::warn}, momentum,
                   kProbability);
  }
  [[nodiscard]] std::unique_ptr<Optimizer> make(const std::vector<NamedTensor>& tensors,
                                                const OptimizerConfig&) const {
    return std::make_unique<SignMomentum>(tensors, momentum);
  }
  bool operator==(const SignMomentumConfig&) const = default;
};
[[maybe_unused]] const bool kAdded = add_optimizer<SignMomentumConfig>();

const Sets kSets{"optimizer.name=sign_momentum", "optimizer.momentum=0.8", "optimizer.lr=0.003",
                 "checkpoint.every=3"};

Sets steps(const std::string& count, Sets sets = kSets) {
  sets.push_back("train.steps=" + count);
  return sets;
}

TEST(AnAddedOptimizer, LearnsAndGoesOnFromACheckpointWithTheSameBits) {
  const SmallRun runs;
  ASSERT_EQ(runs.train("continuous", steps("9")), ExitStatus::done);
  ASSERT_EQ(runs.train("stopped", steps("3")), ExitStatus::done);
  ASSERT_EQ(runs.train("stopped", steps("9")), ExitStatus::done);
  for (const std::int64_t step : {6, 9}) {
    expect_same_weights(runs, "continuous", "stopped", step);
    expect_same_state(runs, "continuous", "stopped", step);
  }
  const auto run = set_up(runs.request("continuous", steps("30")));
  Recorded recorded;
  ASSERT_EQ(run_loop(*run, recorded), ExitStatus::done);
  EXPECT_LT(recorded.train.back().loss, recorded.train.front().loss);
}

TEST(AnAddedOptimizer, IsSavedUnderItsOwnNames) {
  const SmallRun runs;
  ASSERT_EQ(runs.train("run", steps("3")), ExitStatus::done);
  const Checkpoint checkpoint = Checkpoint::open(runs.path() / "run");
  EXPECT_EQ(checkpoint.config().optimizer.rule, OptimizerRule(SignMomentumConfig{0.8}));
  const std::string file = runs.file_of("run", 3, "optimizer.safetensors");
  EXPECT_THAT(file, HasSubstr("\"embed.weight.momentum\""));
  EXPECT_THAT(file, HasSubstr("\"embed.weight.magnitude\""));

  const auto model = checkpoint.load_model(at::kCPU);
  const auto optimizer = make_optimizer(named_tensors(*model), checkpoint.config().optimizer);
  for (const NamedTensor& state : optimizer->named_state()) {
    const bool starts_at_one = state.name.ends_with(".magnitude");
    EXPECT_TRUE(at::all(state.tensor == (starts_at_one ? 1 : 0)).item<bool>()) << state.name;
  }
  checkpoint.load_into(*optimizer);
  EXPECT_EQ(optimizer->updates(), 3);
  EXPECT_TRUE(at::all(optimizer->named_state()[1].tensor == 0.125).item<bool>());
}

TEST(AnAddedOptimizer, IsEvaluatedAndInspected) {
  const SmallRun runs;
  ASSERT_EQ(runs.train("run", steps("3")), ExitStatus::done);
  const std::string run = (runs.path() / "run").string();
  const auto evaluated = test::answer_of(
      cli::add_eval, {"eval", run, "--text", (runs.path() / "valid.txt").string(), "--json"});
  EXPECT_GT(evaluated.at("token_perplexity").get<double>(), 1);
  EXPECT_LT(evaluated.at("token_perplexity").get<double>(), 100);
  const auto inspected = test::answer_of(cli::add_inspect, {"inspect", run, "--json"});
  EXPECT_GT(inspected.at("parameters").get<std::int64_t>(), 0);
}

TEST(AnAddedOptimizer, DoesNotGoOnFromAnotherAndIsRefusedByName) {
  const SmallRun runs;
  ASSERT_EQ(runs.train("run", {"train.steps=3", "checkpoint.every=3"}), ExitStatus::done);
  try {
    (void)set_up(runs.request("run", steps("6")));
    FAIL() << "AdamW's moments were taken";
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), HasSubstr("optimizer.name: \"adamw\" -> \"sign_momentum\""));
  }
  const Checkpoint checkpoint = Checkpoint::open(runs.path() / "run");
  const auto model = checkpoint.load_model(at::kCPU);
  OptimizerConfig config;
  config.rule = "sign_momentum";
  const auto optimizer = make_optimizer(named_tensors(*model), config);
  try {
    checkpoint.load_into(*optimizer);
    FAIL() << "AdamW's moments were taken";
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("optimizer.safetensors: tensors "),
                      HasSubstr("embed.weight.momentum"), HasSubstr("are missing"),
                      HasSubstr("embed.weight.exp_avg"), HasSubstr("have no place here")));
  }
}

}  // namespace
}  // namespace transnormer
