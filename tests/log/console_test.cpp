#include "log/console.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "util/error.h"
#include "util/file.h"
#include "util/temporary_directory.h"

namespace transnormer::log {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

class Console : public ::testing::Test {
 protected:
  void TearDown() override {
    close_file();
    set_level(Level::info);
  }
};

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++found;
  }
  return found;
}

TEST_F(Console, WritesTimeLevelAndMessageToStderr) {
  testing::internal::CaptureStderr();
  warn("the cup is empty {} %s");
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_THAT(text, MatchesRegex("..:..:.. warning  the cup is empty \\{\\} %s\n"));
}

TEST_F(Console, DropsMessagesBelowItsLevel) {
  set_level(Level::warning);
  testing::internal::CaptureStderr();
  debug("one");
  info("two");
  warn("three");
  error("four");
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_THAT(text, Not(HasSubstr("one")));
  EXPECT_THAT(text, Not(HasSubstr("two")));
  EXPECT_THAT(text, HasSubstr("three"));
  EXPECT_THAT(text, HasSubstr("four"));
}

TEST_F(Console, AppendsDatedLinesToTheFileUntilItIsClosed) {
  const test::TemporaryDirectory directory;
  write_file(directory / "train.log", "before\n");
  testing::internal::CaptureStderr();
  open_file(directory / "train.log");
  info("kept");
  close_file();
  info("not kept");
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("not kept"));
  EXPECT_THAT(read_file(directory / "train.log"),
              MatchesRegex("before\n....-..-.. ..:..:..\\.... info  kept\n"));
}

TEST_F(Console, ReportsAFullDiskOnceAndGoesOn) {
  testing::internal::CaptureStderr();
  open_file("/dev/full");
  info("first");
  info("second");
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_EQ(count(text, "cannot be written"), 1U);
  EXPECT_THAT(text, HasSubstr("second"));
}

TEST_F(Console, RefusesAFileItCannotOpen) {
  const test::TemporaryDirectory directory;
  EXPECT_THROW(open_file(directory / "absent" / "train.log"), WriteError);
}

}  // namespace
}  // namespace transnormer::log
