#include "util/file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <optional>
#include <string>
#include <utility>

#include "util/error.h"
#include "util/temporary_directory.h"

namespace transnormer {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

class File : public ::testing::Test {
 protected:
  [[nodiscard]] std::ptrdiff_t entries() const {
    return std::distance(fs::directory_iterator(directory_.path()), fs::directory_iterator());
  }

  test::TemporaryDirectory directory_;
  fs::path path_ = directory_ / "file";
};

// The message that `call` throws as an Error.
template <typename Error, typename Call>
std::string message_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST_F(File, IsReadAsItWasWritten) {
  const std::string bytes("a\0b\n\xff", 5);
  write_file(path_, bytes);
  EXPECT_EQ(read_file(path_), bytes);
  write_file(path_, "");
  EXPECT_EQ(read_file(path_), "");
}

TEST_F(File, IsReadInFullBeyondOneBuffer) {
  const std::string bytes(200'000, 'x');
  write_file(path_, bytes);
  EXPECT_EQ(read_file(path_), bytes);
}

TEST_F(File, NamesPathAndReasonWhereItCannotBeRead) {
  const auto expected = AllOf(HasSubstr(path_.string()), HasSubstr("No such file or directory"));
  EXPECT_THAT(message_of<UserError>([&] { (void)read_file(path_); }), expected);
  EXPECT_THAT(message_of<UserError>([&] { const MappedFile file(path_); }), expected);
  EXPECT_THAT(message_of<UserError>([&] { (void)read_file(directory_.path()); }),
              HasSubstr("Is a directory"));
}

TEST_F(File, NamesPathAndReasonWhereItCannotBeWritten) {
  const fs::path lost = directory_ / "absent" / "file";
  const auto expected = AllOf(HasSubstr(lost.string()), HasSubstr("No such file or directory"));
  EXPECT_THAT(message_of<WriteError>([&] { write_file(lost, "x"); }), expected);
  EXPECT_THAT(message_of<WriteError>([] { write_file("/dev/full", "x"); }),
              HasSubstr("No space left on device"));
}

TEST_F(File, ReplacesAtomicallyAndLeavesNothingElse) {
  write_file_atomically(path_, "old");
  write_file_atomically(path_, "new");
  EXPECT_EQ(read_file(path_), "new");
  EXPECT_EQ(entries(), 1);
}

TEST_F(File, KeepsTheOldOneWhereItCannotBeReplaced) {
  fs::create_directories(path_ / "in the way");
  EXPECT_THROW(write_file_atomically(path_, "new"), WriteError);
  EXPECT_TRUE(fs::exists(path_ / "in the way"));
  EXPECT_EQ(entries(), 1);
}

TEST_F(File, WriterWritesPiecesAndAtOffsets) {
  {
    FileWriter writer(path_);
    writer.write("0123456789", 10);
    writer.write_at(2, "ab", 2);
    writer.write("!", 1);
    writer.finish();
  }
  EXPECT_EQ(read_file(path_), "01ab456789!");
}

TEST_F(File, WriterDroppedBeforeItsEndLeavesNoFile) {
  {
    FileWriter writer(path_);
    writer.write("half", 4);
  }
  EXPECT_FALSE(fs::exists(path_));
}

TEST_F(File, MakesDirectoriesOrSaysWhyNot) {
  make_directories(directory_ / "a" / "b");
  make_directories(directory_ / "a" / "b");
  EXPECT_TRUE(fs::is_directory(directory_ / "a" / "b"));
  write_file(path_, "");
  EXPECT_THAT(message_of<WriteError>([&] { make_directories(path_ / "c"); }),
              HasSubstr("Not a directory"));
}

TEST_F(File, LinksAreReplaced) {
  replace_symlink("one", path_);
  replace_symlink("two", path_);
  EXPECT_EQ(fs::read_symlink(path_), "two");
  EXPECT_EQ(entries(), 1);
}

TEST_F(File, IsMappedWhole) {
  write_file(path_, "mapped");
  MappedFile file(path_);
  EXPECT_EQ(file.text(), "mapped");
  const MappedFile moved(std::move(file));
  EXPECT_EQ(moved.text(), "mapped");
}

TEST_F(File, IsMappedWhenEmpty) {
  write_file(path_, "");
  const MappedFile file(path_);
  EXPECT_EQ(file.size(), 0U);
}

TEST_F(File, LockExcludesOthersUntilItIsDropped) {
  auto lock = FileLock::try_acquire(path_);
  ASSERT_TRUE(lock);
  EXPECT_FALSE(FileLock::try_acquire(path_));
  FileLock moved = std::move(*lock);
  lock.reset();
  EXPECT_FALSE(FileLock::try_acquire(path_));
  { const FileLock dropped = std::move(moved); }
  EXPECT_TRUE(FileLock::try_acquire(path_));
}

TEST_F(File, LockDiesWithItsProcess) {
  const pid_t child = ::fork();
  if (child == 0) {
    const FileLock lock = FileLock::acquire(path_);
    ::_exit(0);
  }
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(FileLock::try_acquire(path_));
}

TEST_F(File, LockNamesThePathWhereItCannotBeMade) {
  const fs::path lost = directory_ / "absent" / "lock";
  EXPECT_THAT(message_of<WriteError>([&] { (void)FileLock::acquire(lost); }),
              HasSubstr(lost.string()));
}

}  // namespace
}  // namespace transnormer
