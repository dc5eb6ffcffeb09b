#include "train/events.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <utility>
#include <vector>

#include "util/file.h"
#include "util/temporary_directory.h"

namespace transnormer {
namespace {

using testing::HasSubstr;

class EventsTest : public testing::Test {
 protected:
  EventsTest() { log::set_level(log::Level::error); }
  ~EventsTest() override {
    log::close_file();
    log::set_level(log::Level::info);
  }

  Events open() {
    std::vector<std::unique_ptr<log::EventSink>> files;
    files.push_back(log::make_jsonl_sink(metrics_));
    return {log::make_console_sink(), std::move(files)};
  }

  test::TemporaryDirectory directory_;
  std::filesystem::path metrics_ = directory_ / "metrics.jsonl";
};

TEST_F(EventsTest, AGapInAFileIsMarkedOnceItCanBeWrittenAgain) {
  Events events = open();
  events.note(1, "started", "a run");
  EXPECT_FALSE(events.have_lost_records());
  testing::internal::CaptureStderr();
  std::filesystem::rename(metrics_, directory_ / "aside");
  std::filesystem::create_directory(metrics_);  // in the way
  events.note(2, "lost", "a note");
  events.note(3, "lost", "a note");
  std::filesystem::remove(metrics_);
  std::filesystem::rename(directory_ / "aside", metrics_);
  events.note(4, "kept", "a note");
  events.note(5, "kept", "a note");
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("cannot be written"));
  EXPECT_TRUE(events.have_lost_records());
  EXPECT_THAT(read_file(metrics_),
              testing::MatchesRegex(".*\"started\".*\n.*\"step\":4.*\n.*\"step\":4,\"event\":"
                                    "\"log_gap\".*2 records are missing.*\n.*\"step\":5.*\n"));
}

TEST_F(EventsTest, AGapInTheLogOfMessagesIsMarkedToo) {
  const std::filesystem::path log_file = directory_ / "train.log";
  testing::internal::CaptureStderr();
  log::open_file(log_file);
  Events events = open();
  std::filesystem::remove(log_file);
  std::filesystem::create_directory(log_file);  // in the way
  events.note(1, "lost", "a note");
  std::filesystem::remove(log_file);
  events.note(2, "kept", "a note");
  (void)testing::internal::GetCapturedStderr();
  EXPECT_THAT(read_file(metrics_), HasSubstr("train.log: can be written again, 1 record is"));
  EXPECT_THAT(read_file(log_file), HasSubstr("1 record is missing"));
}

}  // namespace
}  // namespace transnormer
