#include "util/file_lock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <optional>
#include <utility>

#include "util/error.h"
#include "util/file.h"
#include "util/temporary_directory.h"

namespace transnormer {
namespace {

namespace fs = std::filesystem;

class Lock : public ::testing::Test {
 protected:
  test::TemporaryDirectory directory_;
  fs::path path_ = directory_ / "lock";
};

TEST_F(Lock, ExcludesOthersUntilItIsDropped) {
  auto lock = FileLock::try_acquire(path_);
  ASSERT_TRUE(lock);
  EXPECT_TRUE(lock->works());
  EXPECT_FALSE(FileLock::try_acquire(path_));
  FileLock moved = std::move(*lock);
  lock.reset();
  EXPECT_FALSE(FileLock::try_acquire(path_));
  { const FileLock dropped = std::move(moved); }
  EXPECT_TRUE(FileLock::try_acquire(path_));
}

TEST_F(Lock, DiesWithItsProcess) {
  const pid_t child = ::fork();
  if (child == 0) {
    const FileLock lock = FileLock::acquire(path_);
    ::_exit(0);
  }
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(FileLock::try_acquire(path_));
}

TEST_F(Lock, NamesThePathWhereItCannotBeMade) {
  const fs::path lost = directory_ / "absent" / "lock";
  try {
    (void)FileLock::acquire(lost);
    FAIL() << "it was acquired";
  } catch (const WriteError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr(lost.string()));
  }
}

TEST_F(Lock, KnowsWhetherItMadeItsFile) {
  EXPECT_TRUE(FileLock::try_acquire(path_)->made_file());
  EXPECT_FALSE(FileLock::try_acquire(path_)->made_file());
}

TEST_F(Lock, KnowsWhetherItsFileIsStillTheNamedOne) {
  const FileLock lock = FileLock::acquire(path_);
  EXPECT_TRUE(lock.is_at(path_));
  fs::rename(path_, directory_ / "moved");
  EXPECT_FALSE(lock.is_at(path_));
  write_file(path_, "");
  EXPECT_FALSE(lock.is_at(path_));
  fs::rename(directory_ / "moved", path_);
  EXPECT_TRUE(lock.is_at(path_));
}

TEST_F(Lock, TakesAFileThatMayOnlyBeRead) {
  write_file(path_, "theirs");
  const pid_t child = ::fork();
  if (child == 0) {
    ::chmod(path_.c_str(), 0444);
    ::chmod(path_.parent_path().c_str(), 0755);
    // Another user; one who may already do everything cannot try this and passes.
    (void)!::setuid(65534);
    const auto lock = FileLock::try_acquire(path_);
    ::_exit(lock && lock->works() ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(read_file(path_), "theirs");
}

TEST_F(Lock, NotesOverwriteFormerOnesOnly) {
  write_file(path_, "123456789\n");
  const FileLock lock = FileLock::acquire(path_);
  lock.note("17\n");
  EXPECT_EQ(read_file(path_), "17\n");
  write_file(path_, "something else");
  lock.note("18\n");
  EXPECT_EQ(read_file(path_), "something else");
}

TEST_F(Lock, LeavesTheFileToAllWhomTheUmaskLets) {
  const mode_t before = ::umask(002);
  (void)FileLock::acquire(path_);
  ::umask(before);
  EXPECT_EQ(fs::status(path_).permissions(), fs::perms(0664));
}

}  // namespace
}  // namespace transnormer
