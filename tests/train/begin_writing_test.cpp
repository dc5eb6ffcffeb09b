#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "small_run.h"
#include "util/python.h"

namespace transnormer {
namespace {

using nlohmann::json;
using testing::HasSubstr;

class BeginWriting : public testing::Test {
 protected:
  void SetUp() override {
    if (!test::python_has("tensorboard")) {
      GTEST_SKIP() << TRANSNORMER_PYTHON " has no tensorboard to check against";
    }
  }

  [[nodiscard]] ExitStatus train(const std::vector<std::string>& more) const {
    std::vector<std::string> sets{"log.tensorboard=true", "data.valid=" + file("valid.txt")};
    sets.insert(sets.end(), more.begin(), more.end());
    return runs_.train("run", sets);
  }

  // What TensorBoard's plugin shows of the run's hyper-parameters.
  [[nodiscard]] json hparams() const {
    const test::PythonResult result = test::run_python(
        "'" TRANSNORMER_SOURCE_DIR "/tests/log/read_hparams.py' '" + file("run") + "' 2>/dev/null");
    EXPECT_EQ(result.status, 0);
    return json::parse(result.output)["runs"];
  }

  [[nodiscard]] std::string file(const std::string& name) const {
    return (runs_.path() / name).string();
  }

  SmallRun runs_;
};

TEST_F(BeginWriting, TensorboardListsARunOnceWithTheSettingsOfItsNewestSession) {
  ASSERT_EQ(train({"train.steps=4"}), ExitStatus::done);
  const json first = hparams()["tensorboard/hparams"];
  EXPECT_EQ(first["settings"]["optimizer.lr"], 0.01);
  EXPECT_EQ(first["settings"]["model.early.attention"], "diag");
  EXPECT_EQ(first["settings"].count("run_name"), 0U);
  EXPECT_EQ(first["metrics"]["last_valid/loss"][0], 4);
  ASSERT_EQ(train({"train.steps=6", "optimizer.lr=0.02"}), ExitStatus::done);
  const json runs = hparams();
  ASSERT_EQ(runs.size(), 1U);
  const json& run = runs["tensorboard/hparams"];
  EXPECT_EQ(run["sessions"], 1);
  EXPECT_EQ(run["settings"]["optimizer.lr"], 0.02);
  EXPECT_EQ(run["settings"]["train.steps"], 6);
  EXPECT_EQ(run["status"], "STATUS_SUCCESS");
  EXPECT_EQ(run["metrics"]["last_valid/loss"][0], 6);
  EXPECT_EQ(run["metrics"]["best_valid/perplexity"].size(), 2U);
}

TEST_F(BeginWriting, TensorboardShowsTheConfigOfEachSession) {
  ASSERT_EQ(train({"train.steps=2"}), ExitStatus::done);
  ASSERT_EQ(train({"train.steps=4"}), ExitStatus::done);
  const test::PythonResult texts = test::run_python(
      "-c 'import sys; from tensorboard.backend.event_processing import plugin_event_accumulator "
      "as p; print([(e.step, e.tensor_proto.string_val[0].decode()) for e in "
      "p.EventAccumulator(sys.argv[1]).Reload().Tensors(\"config/text_summary\")])' '" +
      file("run/tensorboard") + "' 2>/dev/null");
  EXPECT_THAT(texts.output, HasSubstr("[(0, 'Unlike the defaults:"));
  EXPECT_THAT(texts.output, HasSubstr("\\ntrain.steps = 2\\n"));
  EXPECT_THAT(texts.output, HasSubstr("(2, 'Unlike the defaults:"));
  EXPECT_THAT(texts.output, HasSubstr("\\ntrain.steps = 4\\n"));
}

}  // namespace
}  // namespace transnormer
