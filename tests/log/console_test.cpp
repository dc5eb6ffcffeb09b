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

TEST_F(Console, TheFileGetsAtLeastWhatIsOfInterestWhateverTheTerminalShows) {
  const test::TemporaryDirectory directory;
  set_level(Level::error);
  testing::internal::CaptureStderr();
  open_file(directory / "train.log");
  debug("too fine");
  info("of interest");
  set_level(Level::debug);
  debug("asked for");
  close_file();
  const std::string text = read_file(directory / "train.log");
  EXPECT_THAT(text, HasSubstr("of interest"));
  EXPECT_THAT(text, Not(HasSubstr("too fine")));
  EXPECT_THAT(text, HasSubstr("asked for"));
  EXPECT_THAT(testing::internal::GetCapturedStderr(), Not(HasSubstr("of interest")));
}

TEST_F(Console, CountsWhatItsFileHasLost) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(lost_by_file().count, 0);
  open_file("/dev/full");
  info("first");
  info("second");
  EXPECT_EQ(lost_by_file().count, 2);
  EXPECT_TRUE(lost_by_file().still_fails);
  close_file();
  EXPECT_EQ(lost_by_file().count, 0);
  (void)testing::internal::GetCapturedStderr();
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
