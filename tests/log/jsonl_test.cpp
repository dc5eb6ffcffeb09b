#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "log/events.h"
#include "util/error.h"
#include "util/file.h"
#include "util/temporary_directory.h"

namespace transnormer::log {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TrainEvent train_event(std::int64_t step) {
  TrainEvent event;
  event.step = step;
  event.tokens = 512 * step;
  event.loss = 0.1;
  event.figures = {{"perplexity", std::exp(0.1)}};
  event.lr = 5e-4;
  event.grad_norm = 1.0 / 3;
  event.tokens_per_s = 1000;
  event.elapsed_s = 2.5;
  event.epoch = 0.25;
  event.data_wait_s = 0.125;
  event.memory_bytes = 1 << 20;
  return event;
}

std::vector<std::string> lines_of(const std::filesystem::path& path) {
  std::vector<std::string> lines;
  std::istringstream text(read_file(path));
  for (std::string line; std::getline(text, line);) {
    lines.push_back(line);
  }
  return lines;
}

class Jsonl : public ::testing::Test {
 protected:
  template <typename Event>
  json written(const Event& event) {
    make_jsonl_sink(path_)->on(event);
    return json::parse(lines_of(path_).back());
  }

  test::TemporaryDirectory directory_;
  std::filesystem::path path_ = directory_ / "metrics.jsonl";
};

TEST_F(Jsonl, WritesATrainLine) {
  TrainEvent event = train_event(7);
  event.loss_scale = 1024;
  event.skipped_updates = 2;
  event.gradients["all"] = {0.5, 0.25, 0.75, 0.125};
  EXPECT_EQ(written(event), json::parse(R"({"kind": "train", "step": 7, "tokens": 3584, "loss": 0.1,
                "perplexity": )" + json(std::exp(0.1)).dump() +
                                        R"(, "lr": 0.0005,
                "grad_norm": 0.3333333333333333, "tokens_per_s": 1000.0, "elapsed_s": 2.5,
                "epoch": 0.25, "data_wait_s": 0.125, "memory_bytes": 1048576,
                "loss_scale": 1024.0, "skipped_updates": 2, "gradients": {"all": {"norm": 0.5,
                "zero_share": 0.25, "mean": 0.75, "relative_std": 0.125}}})"));
}

TEST_F(Jsonl, LeavesOutLossScaleAndGradientsThatAreNotThere) {
  const json line = written(train_event(1));
  EXPECT_FALSE(line.contains("loss_scale"));
  EXPECT_FALSE(line.contains("gradients"));
}

TEST_F(Jsonl, WritesAValidLine) {
  ValidEvent event;
  event.step = 3;
  event.tokens = 9;
  event.loss = 2;
  event.figures = {{"perplexity", std::exp(2)}};
  event.elapsed_s = 4;
  event.seconds = 0.5;
  event.best = true;
  EXPECT_EQ(written(event),
            json::parse(R"({"kind": "valid", "step": 3, "tokens": 9, "loss": 2.0, "perplexity": )" +
                        json(std::exp(2.0)).dump() +
                        R"(, "elapsed_s": 4.0, "seconds": 0.5, "best": true})"));
}

TEST_F(Jsonl, WritesAnEventLine) {
  NoteEvent event;
  event.step = 5;
  event.name = "saved";
  event.message = "a \"quoted\" \xff name";
  EXPECT_EQ(written(event), json::parse(R"({"kind": "event", "step": 5, "event": "saved",
      "message": "a \"quoted\" \ufffd name"})"));
}

TEST_F(Jsonl, WritesWhatIsNotFiniteAsNull) {
  TrainEvent event = train_event(1);
  event.loss = 1e6;
  event.figures = {{"perplexity", std::exp(1e6)}};  // its perplexity overflows
  event.grad_norm = kNan;
  const json line = written(event);
  EXPECT_TRUE(line["grad_norm"].is_null());
  EXPECT_TRUE(line["perplexity"].is_null());
}

TEST_F(Jsonl, AppendsToWhatIsThere) {
  make_jsonl_sink(path_)->on(train_event(1));
  make_jsonl_sink(path_)->on(train_event(2));
  EXPECT_EQ(lines_of(path_).size(), 2U);
}

TEST_F(Jsonl, ReportsAFullDiskOnceAndGoesOn) {
  testing::internal::CaptureStderr();
  const auto sink = make_jsonl_sink("/dev/full");
  sink->on(train_event(1));
  const std::string first = testing::internal::GetCapturedStderr();
  EXPECT_THAT(first, HasSubstr("/dev/full: cannot be written: No space left on device"));
  testing::internal::CaptureStderr();
  sink->on(train_event(2));
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST_F(Jsonl, RefusesAPlaceThatCannotBeWritten) {
  EXPECT_THROW((void)make_jsonl_sink(directory_ / "absent" / "metrics.jsonl"), WriteError);
}

TEST_F(Jsonl, CutsLinesOfEveryKindAfterAStep) {
  const auto sink = make_jsonl_sink(path_);
  for (const std::int64_t step : {10, 20, 30}) {
    sink->on(train_event(step));
    ValidEvent valid;
    valid.step = step;
    sink->on(valid);
    NoteEvent note;
    note.step = step;
    sink->on(note);
  }
  const std::vector<std::string> before = lines_of(path_);
  EXPECT_EQ(cut_metrics_after(path_, 20), 3);
  const std::vector<std::string> expected(before.begin(), before.begin() + 6);
  EXPECT_EQ(lines_of(path_), expected);
}

TEST_F(Jsonl, CutsLinesOfStepsBeyondAll) {
  write_file(
      path_,
      "{\"step\":20}\n{\"step\":18446744073709551615}\n{\"step\":1e300}\n{\"step\":\"x\"}\n");
  EXPECT_EQ(cut_metrics_after(path_, 20), 2);
}

TEST_F(Jsonl, CutsTornLines) {
  write_file(path_, "{\"step\": 1}\n{\"step\": \n{\"step\": 2}\n{\"step\": 2, \"lo");
  EXPECT_EQ(cut_metrics_after(path_, 5), 2);
  EXPECT_EQ(read_file(path_), "{\"step\": 1}\n{\"step\": 2}\n");
}

TEST_F(Jsonl, CutsAWholeObjectWithoutItsLineEnd) {
  write_file(path_, "{\"step\": 1}\n{\"step\": 2}");
  EXPECT_EQ(cut_metrics_after(path_, 5), 1);
  EXPECT_EQ(read_file(path_), "{\"step\": 1}\n");
}

TEST_F(Jsonl, LeavesAFileAloneThatNeedsNoCut) {
  write_file(path_, "{\"step\": 1}\n");
  const auto written_at = std::filesystem::last_write_time(path_);
  EXPECT_EQ(cut_metrics_after(path_, 1), 0);
  EXPECT_EQ(std::filesystem::last_write_time(path_), written_at);
  EXPECT_EQ(cut_metrics_after(directory_ / "absent", 1), 0);
}

}  // namespace
}  // namespace transnormer::log
