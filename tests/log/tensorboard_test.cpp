#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>

#include "log/events.h"
#include "log/tensorboard_format.h"
#include "util/file.h"
#include "util/python.h"
#include "util/temporary_directory.h"

namespace transnormer::log {
namespace {

using nlohmann::json;

TEST(Crc32c, EqualsTheCheckValuesOfRfc3720) {
  EXPECT_EQ(crc32c("123456789"), 0xE3069283U);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAU);
  EXPECT_EQ(crc32c(""), 0U);
}

class Tensorboard : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!test::python_has("tensorboard")) {
      GTEST_SKIP() << TRANSNORMER_PYTHON " has no tensorboard to check against";
    }
  }

  // What TensorBoard itself reads.
  json read() {
    const test::PythonResult result =
        test::run_python("'" TRANSNORMER_SOURCE_DIR "/tests/log/read_events.py' '" +
                         directory_.path().string() + "' 2>/dev/null");
    EXPECT_EQ(result.status, 0);
    return json::parse(result.output);
  }

  test::TemporaryDirectory directory_;
};

TrainEvent train_event(std::int64_t step, double loss) {
  TrainEvent event;
  event.step = step;
  event.loss = loss;
  event.figures = {{"perplexity", std::exp(loss)}};
  event.lr = 0.5;
  event.tokens_per_s = 3000;
  return event;
}

ValidEvent valid_event(std::int64_t step, double loss) {
  ValidEvent event;
  event.step = step;
  event.loss = loss;
  event.figures = {{"perplexity", std::exp(loss)}};
  return event;
}

TEST_F(Tensorboard, ReadsScalarsAndHistograms) {
  const auto sink = make_tensorboard_sink(directory_.path(), 0);
  TrainEvent event = train_event(300, 1.5);
  event.loss_scale = 512;
  event.gradients["layers.0.q_proj"] = {0.5, 0.25, 0.75, 0.125};
  event.histograms["all"] = {-2, 0, 0, 1e-3, 3, 1e30, std::nan("")};
  sink->on(event);
  sink->on(valid_event(300, 2.5));

  const json found = read();
  EXPECT_EQ(found["versions"], json({"brain.Event:2"}));
  EXPECT_EQ(found["events"], json({4}));  // version, session, two summaries
  const json& scalars = found["scalars"];
  EXPECT_EQ(scalars["train/loss"], json({{300, 1.5}}));
  EXPECT_EQ(scalars["train/perplexity"], json({{300, static_cast<float>(std::exp(1.5))}}));
  EXPECT_EQ(scalars["train/lr"], json({{300, 0.5}}));
  EXPECT_EQ(scalars["train/tokens_per_s"], json({{300, 3000.0}}));
  EXPECT_EQ(scalars["train/loss_scale"], json({{300, 512.0}}));
  EXPECT_EQ(scalars["valid/loss"], json({{300, 2.5}}));
  EXPECT_EQ(scalars["valid/perplexity"], json({{300, static_cast<float>(std::exp(2.5))}}));
  EXPECT_EQ(scalars["grad/layers.0.q_proj/norm"], json({{300, 0.5}}));
  EXPECT_EQ(scalars["grad/layers.0.q_proj/zero_share"], json({{300, 0.25}}));
  EXPECT_EQ(scalars["grad/layers.0.q_proj/mean"], json({{300, 0.75}}));
  EXPECT_EQ(scalars["grad/layers.0.q_proj/relative_std"], json({{300, 0.125}}));

  const json histogram = found["histograms"]["grad/all/histogram"][0][1];
  EXPECT_EQ(histogram["num"], 6);
  EXPECT_EQ(histogram["min"], -2);
  EXPECT_EQ(histogram["max"], 1e30);
  EXPECT_DOUBLE_EQ(histogram["sum"], -2 + 1e-3 + 3 + 1e30);
  const auto limits = histogram["limits"].get<std::vector<double>>();
  const auto counts = histogram["counts"].get<std::vector<double>>();
  ASSERT_EQ(limits.size(), counts.size());
  for (const auto& [value, expected] :
       {std::pair{-2.0, 1.0}, {0.0, 2.0}, {1e-3, 1.0}, {3.0, 1.0}}) {
    const auto bucket = std::upper_bound(limits.begin(), limits.end(), value) - limits.begin();
    EXPECT_EQ(counts[static_cast<std::size_t>(bucket)], expected) << value;
  }
  EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), 0.0), 6);
}

TEST_F(Tensorboard, DropsWhatAResumeCutAway) {
  {
    const auto sink = make_tensorboard_sink(directory_.path(), 0);
    sink->on(train_event(10, 5));
    sink->on(train_event(20, 4));
    sink->on(valid_event(20, 4));
    sink->on(train_event(30, 3));
  }
  const auto resumed = make_tensorboard_sink(directory_.path(), 20);
  resumed->on(train_event(30, 2));
  const json found = read();
  EXPECT_EQ(found["scalars"]["train/loss"], json({{10, 5.0}, {20, 4.0}, {30, 2.0}}));
  EXPECT_EQ(found["scalars"]["valid/loss"], json({{20, 4.0}}));
  EXPECT_EQ(found["events"].size(), 2U);
}

TEST_F(Tensorboard, ShowsTextsWhateverBytesTheyHold) {
  const auto sink = make_tensorboard_sink(directory_.path(), 0);
  sink->on(TextEvent{.step = 0, .name = "config", .markdown = "```\nmodel.dim = 32\n```\n"});
  sink->on(TextEvent{.step = 5, .name = "samples/1", .markdown = "caf\xc3\xa9 \xc3"});
  const json found = read();
  EXPECT_EQ(found["texts"]["config/text_summary"],
            json::parse(R"([[0, "```\nmodel.dim = 32\n```\n"]])"));
  EXPECT_EQ(found["texts"]["samples/1/text_summary"], json::parse("[[5, \"café \uFFFD\"]]"));
}

TEST_F(Tensorboard, KeepsTheTextOfEachSession) {
  make_tensorboard_sink(directory_.path(), 0)->on(TextEvent{0, "config", "lr 1"});
  make_tensorboard_sink(directory_.path(), 20)->on(TextEvent{20, "config", "lr 2"});
  EXPECT_EQ(read()["texts"]["config/text_summary"], json::parse(R"([[0, "lr 1"], [20, "lr 2"]])"));
}

TEST_F(Tensorboard, ANewFileComesLastWhateverOthersAreCalled) {
  const std::string later = "events.out.tfevents.9000000000.host.1";
  for (const std::string& name :
       {later, std::string("events.out.tfevents.9223372036854775807.host.1"),
        std::string("events.out.tfevents.99999999999999.host"),
        std::string("events.out.tfevents.-99999999999999999999")}) {
    write_file(directory_ / name, "");
  }
  (void)make_tensorboard_sink(directory_.path(), 0);
  EXPECT_TRUE(std::ranges::any_of(
      std::filesystem::directory_iterator(directory_.path()), [&](const auto& entry) {
        return entry.path().filename().string().starts_with("events.out.tfevents.9000000001.");
      }));
}

TEST_F(Tensorboard, AFileWhoseDirectoryWasRemovedIsMadeAgainWithItsVersion) {
  const auto sink = make_tensorboard_sink(directory_.path(), 0);
  sink->on(valid_event(1, 3));
  std::filesystem::remove_all(directory_.path());
  sink->on(valid_event(2, 2));
  const json events = read();
  EXPECT_EQ(events["versions"], json({"brain.Event:2"}));
  EXPECT_EQ(events["scalars"]["valid/loss"], json::parse("[[2, 2.0]]"));
  EXPECT_EQ(sink->lost().count, 0);
}

}  // namespace
}  // namespace transnormer::log
