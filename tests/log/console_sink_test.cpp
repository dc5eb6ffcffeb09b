#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "log/events.h"

namespace transnormer::log {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;

std::vector<std::string> lines_of(const TrainEvent& event, EventSink& sink) {
  testing::internal::CaptureStderr();
  sink.on(event);
  std::istringstream stream(testing::internal::GetCapturedStderr());
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) {
    lines.push_back(line);
  }
  return lines;
}

TrainEvent late_step() {
  TrainEvent event;
  event.step = 123456;
  event.loss = 5.0556;
  event.figures = {{"perplexity", 156.89}};
  event.lr = 0.000354;
  event.grad_norm = 0.7261;
  event.tokens_per_s = 112345;
  event.time_left_s = 36120;
  event.memory_bytes = 12'345'678'901;
  return event;
}

TEST(ConsoleSink, GivesAStepOneLineThatATerminalHolds) {
  const std::unique_ptr<EventSink> sink = make_console_sink();
  EXPECT_THAT(lines_of(late_step(), *sink),
              ElementsAre(EndsWith("info  step 123,456  loss 5.0556  ppl 157  lr 0.000354  grad "
                                   "0.726  112k tok/s  10h02m left"),
                          EndsWith("info  memory: 11.50 GiB")));
  const std::vector<std::string> again = lines_of(late_step(), *sink);
  ASSERT_EQ(again.size(), 1U);
  EXPECT_LE(again.front().size(), 100U);
}

TEST(ConsoleSink, BreaksWhatIsLongerAndTellsOfMemoryThatGrew) {
  const std::unique_ptr<EventSink> sink = make_console_sink();
  TrainEvent event = late_step();
  event.ranks_wait_share = 0.123;
  event.data_wait_s = 3;
  event.loss_scale = 65536;
  event.skipped_updates = 7;
  for (const std::string& line : lines_of(event, *sink)) {
    EXPECT_LE(line.size(), 100U) << line;
  }
  event.memory_bytes += event.memory_bytes / 8;
  EXPECT_THAT(lines_of(event, *sink).back(), EndsWith("memory: 12.94 GiB"));
}

}  // namespace
}  // namespace transnormer::log
