// Each optimizer is trained, stopped, resumed and inspected as the program does it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "checkpoint/checkpoint.h"
#include "config/union.h"
#include "train/small_run.h"
#include "train/training_run.h"
#include "util/error.h"

namespace transnormer {
namespace {

using testing::HasSubstr;
using Sets = std::vector<std::string>;

class EveryOptimizer : public testing::TestWithParam<std::string> {
 protected:
  [[nodiscard]] static Sets sets(const std::string& steps, Sets more = {}) {
    more.insert(more.end(),
                {"optimizer.name=" + GetParam(), "optimizer.lr=0.003", "optimizer.weight_decay=0.1",
                 "checkpoint.every=3", "train.steps=" + steps});
    return more;
  }
  const SmallRun runs_;
};

TEST_P(EveryOptimizer, LearnsAndResumesToTheSameBits) {
  for (const Sets& more :
       {Sets{}, Sets{"optimizer.no_decay=*.bias", "optimizer.ema=0.9", "optimizer.clip_norm=1"}}) {
    const std::string kind = std::to_string(more.size());
    ASSERT_EQ(runs_.train("whole" + kind, sets("9", more)), ExitStatus::done);
    ASSERT_EQ(runs_.train("parts" + kind, sets("4", more)), ExitStatus::done);
    ASSERT_EQ(runs_.train("parts" + kind, sets("9", more)), ExitStatus::done);
    expect_same_weights(runs_, "whole" + kind, "parts" + kind, 9);
    expect_same_state(runs_, "whole" + kind, "parts" + kind, 9);
  }
  const auto run = set_up(runs_.request("long", sets("40")));
  Recorded recorded;
  ASSERT_EQ(run_loop(*run, recorded), ExitStatus::done);
  EXPECT_LT(recorded.train.back().loss, recorded.train.front().loss - 0.2);
}

TEST_P(EveryOptimizer, SavesWhatItKeepsAndNothingElse) {
  ASSERT_EQ(runs_.train("run", sets("3")), ExitStatus::done);
  const std::map<std::string, std::pair<Sets, Sets>> slots{
      {"adamw", {{"exp_avg", "exp_avg_sq"}, {"exp_avg", "exp_avg_sq"}}},
      {"lion", {{"exp_avg"}, {"exp_avg"}}},
      {"muon", {{"exp_avg", "exp_avg_sq"}, {"momentum_buffer"}}}};
  const auto& [of_others, of_matrices] = slots.at(GetParam());
  const std::string file = runs_.file_of("run", 3, "optimizer.safetensors");
  for (const std::string slot : {"exp_avg", "exp_avg_sq", "momentum_buffer"}) {
    const auto has = [&](const std::string& name) {
      return file.find('"' + name + '.' + slot + '"') != std::string::npos;
    };
    EXPECT_EQ(has("layers.0.attn.q_proj.weight"), std::ranges::count(of_matrices, slot) == 1);
    EXPECT_EQ(has("layers.0.attn.q_proj.bias"), std::ranges::count(of_others, slot) == 1);
    EXPECT_EQ(has("embed.weight"), std::ranges::count(of_others, slot) == 1);
    EXPECT_EQ(has("layers.1.attn.lrpe.theta"), std::ranges::count(of_others, slot) == 1);
  }
}

TEST_P(EveryOptimizer, DoesNotGoOnFromAnother) {
  ASSERT_EQ(runs_.train("run", sets("3")), ExitStatus::done);
  for (const char* other : optimizers().names()) {
    if (other == GetParam()) {
      continue;
    }
    try {
      Sets changed = sets("6");
      changed.push_back(std::string("optimizer.name=") + other);
      (void)set_up(runs_.request("run", changed));
      FAIL() << other << " went on from it";
    } catch (const UserError& error) {
      EXPECT_THAT(error.what(),
                  HasSubstr("optimizer.name: \"" + GetParam() + "\" -> \"" + other + '"'));
    }
  }
}

std::vector<std::string> names() {
  const std::vector<const char*> all = optimizers().names();
  return {all.begin(), all.end()};
}

TEST(TheOptimizers, AreThese) {
  EXPECT_THAT(names(), testing::ElementsAre("adamw", "lion", "muon"));
}

INSTANTIATE_TEST_SUITE_P(Each, EveryOptimizer, testing::ValuesIn(names()),
                         [](const auto& param_info) { return param_info.param; });

}  // namespace
}  // namespace transnormer
