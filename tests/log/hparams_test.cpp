#include "log/hparams.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "util/file.h"
#include "util/python.h"
#include "util/temporary_directory.h"

namespace transnormer::log {
namespace {

using nlohmann::json;

ValidEvent validation(std::int64_t step, double loss, bool best) {
  ValidEvent event;
  event.step = step;
  event.loss = loss;
  event.figures = {{"perplexity", 2 * loss}};
  event.best = best;
  return event;
}

NoteEvent note(const std::string& name) {
  return {.step = 0, .name = name, .message = "", .level = Level::info};
}

class Hparams : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!test::python_has("tensorboard")) {
      GTEST_SKIP() << TRANSNORMER_PYTHON " has no tensorboard to check against";
    }
  }

  [[nodiscard]] std::unique_ptr<EventSink> session(const std::string& run, Settings settings,
                                                   std::int64_t first_step = 0) const {
    return make_hparams_sink(directory_ / run,
                             {.settings = std::move(settings), .first_step = first_step});
  }

  // What the tab shows of all runs.
  [[nodiscard]] json read() const {
    const test::PythonResult result =
        test::run_python("'" TRANSNORMER_SOURCE_DIR "/tests/log/read_hparams.py' '" +
                         directory_.path().string() + "' 2>/dev/null");
    EXPECT_EQ(result.status, 0);
    return json::parse(result.output);
  }

  test::TemporaryDirectory directory_;
};

TEST_F(Hparams, ListsEachRunWithItsSettingsAndItsBestAndLastValidation) {
  const auto first = session("first", {{"optimizer.lr", 0.5}, {"model.lrpe", true}});
  first->on(validation(10, 3, true));
  first->on(validation(20, 2, true));
  first->on(validation(30, 2.5, false));
  const auto second = session(
      "second", {{"optimizer.lr", 0.25}, {"model.lrpe", true}, {"model.ffn", std::string("glu")}});
  const json found = read();
  EXPECT_EQ(found["metrics"], json({"best_valid/loss", "best_valid/perplexity", "last_valid/loss",
                                    "last_valid/perplexity"}));
  EXPECT_EQ(found["differ"], json({"optimizer.lr"}));
  ASSERT_EQ(found["runs"].size(), 2U);
  const json& run = found["runs"]["first"];
  EXPECT_EQ(run["settings"], json({{"optimizer.lr", 0.5}, {"model.lrpe", true}}));
  EXPECT_EQ(run["metrics"],
            json::parse(R"({"best_valid/loss": [20, 2.0], "best_valid/perplexity": [20, 4.0],
                            "last_valid/loss": [30, 2.5], "last_valid/perplexity": [30, 5.0]})"));
  EXPECT_EQ(found["runs"]["second"]["settings"]["model.ffn"], "glu");
  EXPECT_EQ(found["runs"]["second"]["metrics"], json::object());
}

TEST_F(Hparams, ARunOfSeveralSessionsIsThereOnceWithItsNewestSettings) {
  {
    const auto sink = session("run", {{"optimizer.lr", 0.5}});
    sink->on(validation(10, 3, true));
    sink->on(validation(20, 1, true));  // what the resume cuts away
    sink->on(note("done"));
  }
  const auto resumed = session("run", {{"optimizer.lr", 0.25}}, 10);
  json run = read()["runs"]["run"];
  EXPECT_EQ(run["sessions"], 1);
  EXPECT_EQ(run["settings"], json({{"optimizer.lr", 0.25}}));
  EXPECT_EQ(run["status"], "STATUS_UNKNOWN");
  EXPECT_EQ(run["metrics"]["best_valid/loss"], json::parse("[10, 3.0]"));
  resumed->on(validation(30, 2, true));
  run = read()["runs"]["run"];
  EXPECT_EQ(run["metrics"]["best_valid/loss"], json::parse("[30, 2.0]"));
}

TEST_F(Hparams, TellsHowARunEnded) {
  session("done", {{"lr", 1.0}})->on(note("done"));
  session("diverged", {{"lr", 2.0}})->on(note("diverged"));
  session("stopped", {{"lr", 3.0}})->on(note("interrupted"));
  const json runs = read()["runs"];
  EXPECT_EQ(runs["done"]["status"], "STATUS_SUCCESS");
  EXPECT_EQ(runs["diverged"]["status"], "STATUS_FAILURE");
  EXPECT_EQ(runs["stopped"]["status"], "STATUS_UNKNOWN");
}

TEST_F(Hparams, KnowsTheBestOfARunThatGoesOnFromElsewhere) {
  const auto sink = make_hparams_sink(
      directory_ / "fork",
      {.settings = {{"lr", 1.0}}, .first_step = 40, .best_so_far = validation(30, 2, true)});
  sink->on(validation(50, 4, false));
  const json metrics = read()["runs"]["fork"]["metrics"];
  EXPECT_EQ(metrics["best_valid/loss"], json::parse("[30, 2.0]"));
  EXPECT_EQ(metrics["last_valid/loss"], json::parse("[50, 4.0]"));
}

TEST_F(Hparams, AreMadeAgainWhereTheyWereRemoved) {
  const auto sink = session("run", {{"lr", 1.0}});
  std::filesystem::remove_all(directory_ / "run");
  sink->on(validation(10, 3, true));
  sink->on(note("done"));
  const json run = read()["runs"]["run"];
  EXPECT_EQ(run["settings"], json({{"lr", 1.0}}));
  EXPECT_EQ(run["metrics"]["best_valid/loss"], json::parse("[10, 3.0]"));
  EXPECT_EQ(sink->lost().count, 0);
}

TEST_F(Hparams, CountWhatTheyLose) {
  const auto sink = make_hparams_sink(
      directory_ / "run", {.settings = {{"lr", 1.0}}, .still_ours = [] { return false; }});
  testing::internal::CaptureStderr();
  sink->on(validation(10, 3, true));
  sink->on(note("done"));
  (void)testing::internal::GetCapturedStderr();
  EXPECT_EQ(sink->lost().count, 3);  // the session's start, too
  EXPECT_TRUE(sink->lost().still_fails);
}

}  // namespace
}  // namespace transnormer::log
