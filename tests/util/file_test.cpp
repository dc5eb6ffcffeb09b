#include "util/file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
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

TEST_F(File, WriterKeepsTheOldFileUntilItsEnd) {
  write_file(path_, "old");
  {
    FileWriter writer(path_);
    writer.write("half", 4);
    EXPECT_EQ(read_file(path_), "old");
  }
  EXPECT_EQ(read_file(path_), "old");
  FileWriter writer(path_);
  writer.write("new", 3);
  writer.finish();
  EXPECT_EQ(read_file(path_), "new");
  EXPECT_EQ(entries(), 1);
}

TEST_F(File, WriterFollowsLinksAndKeepsThem) {
  fs::create_directory(directory_ / "inner");
  write_file(directory_ / "inner" / "real", "old");
  fs::create_symlink("inner/real", directory_ / "near");
  fs::create_symlink(directory_ / "near", path_);
  write_file_atomically(path_, "new");
  EXPECT_TRUE(fs::is_symlink(path_));
  EXPECT_TRUE(fs::is_symlink(directory_ / "near"));
  EXPECT_EQ(read_file(directory_ / "inner" / "real"), "new");
  fs::create_symlink("inner/absent", directory_ / "dangling");
  write_file_atomically(directory_ / "dangling", "made");
  EXPECT_EQ(read_file(directory_ / "inner" / "absent"), "made");
}

TEST_F(File, WriterAppendsToTheFileThatAStreamIsRedirectedTo) {
  const int descriptor = ::open(path_.c_str(), O_WRONLY | O_CREAT, 0644);
  ASSERT_EQ(::write(descriptor, "before ", 7), 7);
  fs::create_symlink("/dev/fd/" + std::to_string(descriptor), directory_ / "link");
  write_file_atomically("/dev/fd/" + std::to_string(descriptor), "in between ");
  write_file_atomically(directory_ / "link", "by a link ");
  ASSERT_EQ(::write(descriptor, "after", 5), 5);
  ::close(descriptor);
  EXPECT_EQ(read_file(path_), "before in between by a link after");
  EXPECT_EQ(entries(), 2);
}

TEST_F(File, WriterNamesThePathThatWasGiven) {
  const fs::path lost = directory_ / "absent" / "file";
  EXPECT_EQ(message_of<WriteError>([&] { const FileWriter writer(lost); }),
            lost.string() + ": cannot be written: No such file or directory");
  EXPECT_EQ(message_of<WriteError>([&] { const FileWriter writer(directory_.path()); }),
            directory_.path().string() + ": cannot be written: Is a directory");
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

TEST_F(File, WithoutAnEndIsRefused) {
  EXPECT_THAT(message_of<UserError>([] { (void)read_file("/dev/zero", 1 << 20); }),
              AllOf(HasSubstr("/dev/zero"), HasSubstr("more than 1.00 MiB")));
  write_file(path_, "12345");
  EXPECT_EQ(read_file(path_, 5), "12345");
  EXPECT_THAT(message_of<UserError>([this] { (void)read_file(path_, 4); }), HasSubstr("more than"));
}

}  // namespace
}  // namespace transnormer
