#include "log/append_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "util/error.h"
#include "util/file.h"
#include "util/file_size_limit.h"
#include "util/temporary_directory.h"

namespace transnormer::log {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::SizeIs;

class AppendFileTest : public testing::Test {
 protected:
  AppendFileOptions options() {
    return {.report = [this](const std::string& why) { reports_.push_back(why); },
            .still_ours = [this] { return ours_; }};
  }

  test::TemporaryDirectory directory_;
  fs::path path_ = directory_ / "log";
  std::vector<std::string> reports_;
  bool ours_ = true;
};

TEST_F(AppendFileTest, AFailedRecordIsTakenBackAndTheNextOneTriedAgain) {
  AppendFile file(path_, options());
  file.append("whole\n");
  {
    const test::FileSizeLimit full(8);
    file.append("torn after two\n");
    file.append("and lost too\n");
    EXPECT_EQ(read_file(path_), "whole\n");
    EXPECT_TRUE(file.lost().still_fails);
  }
  file.append("again\n");
  EXPECT_EQ(read_file(path_), "whole\nagain\n");
  EXPECT_EQ(file.lost().count, 2);
  EXPECT_FALSE(file.lost().still_fails);
  EXPECT_EQ(file.lost().file, path_);
}

TEST_F(AppendFileTest, IsFlushedWhileRecordsAreAppended) {
  AppendFile file(path_, options());
  std::thread flusher([&file] {
    for (int i = 0; i < 20; ++i) {
      file.flush();
    }
  });
  for (int i = 0; i < 200; ++i) {
    file.append("record\n");
  }
  flusher.join();
  EXPECT_EQ(read_file(path_).size(), 200 * std::string("record\n").size());
}

TEST_F(AppendFileTest, EachGapIsToldOnce) {
  AppendFile file(path_, options());
  for (int gap = 1; gap <= 2; ++gap) {
    {
      const test::FileSizeLimit full(static_cast<std::uintmax_t>(4 * gap - 4));
      file.append("one\n");
      file.append("two\n");
    }
    file.append("its\n");
    EXPECT_THAT(reports_, SizeIs(gap));
  }
  EXPECT_THAT(reports_.front(), HasSubstr(path_.string() + ": cannot be written: "));
  EXPECT_EQ(file.lost().count, 4);
}

TEST_F(AppendFileTest, AFileThatWasRemovedMovedOrReplacedIsMadeAnew) {
  AppendFile file(path_, options());
  file.append("one\n");
  fs::remove(path_);
  file.append("two\n");
  EXPECT_EQ(read_file(path_), "two\n");
  fs::rename(path_, directory_ / "moved");
  file.append("three\n");
  EXPECT_EQ(read_file(path_), "three\n");
  EXPECT_EQ(read_file(directory_ / "moved"), "two\n");
  write_file(directory_ / "other", "other\n");
  fs::rename(directory_ / "other", path_);
  file.append("four\n");
  EXPECT_EQ(read_file(path_), "other\nfour\n");
  EXPECT_EQ(file.lost().count, 0);
}

TEST_F(AppendFileTest, WhereItsDirectoryIsNoLongerOursNothingIsWritten) {
  AppendFile file(path_, options());
  file.append("one\n");
  ours_ = false;
  file.append("lost\n");
  EXPECT_EQ(read_file(path_), "one\n");
  fs::remove(path_);
  file.append("lost, too\n");
  EXPECT_FALSE(fs::exists(path_));
  EXPECT_THAT(reports_, testing::ElementsAre(HasSubstr("no longer that of this run")));
  ours_ = true;
  file.append("three\n");
  EXPECT_EQ(read_file(path_), "three\n");
  EXPECT_EQ(file.lost().count, 2);
}

TEST_F(AppendFileTest, ADirectoryThatIsGoneIsNotMade) {
  fs::create_directory(directory_ / "run");
  AppendFile file(directory_ / "run" / "log", options());
  fs::remove_all(directory_ / "run");
  file.append("lost\n");
  EXPECT_FALSE(fs::exists(directory_ / "run"));
  EXPECT_EQ(file.lost().count, 1);
}

TEST_F(AppendFileTest, TheHeaderBeginsEachFileOnce) {
  AppendFileOptions how = options();
  how.header = "header\n";
  AppendFile file(path_, how);
  file.append("one\n");
  file.append("two\n");
  EXPECT_EQ(read_file(path_), "header\none\ntwo\n");
  fs::remove(path_);
  file.append("three\n");
  EXPECT_EQ(read_file(path_), "header\nthree\n");
}

}  // namespace
}  // namespace transnormer::log
