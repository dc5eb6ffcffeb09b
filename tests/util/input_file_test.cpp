#include "util/input_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "util/error.h"
#include "util/file.h"
#include "util/temporary_directory.h"

namespace transnormer {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class Input : public ::testing::Test {
 protected:
  template <class Call>
  static std::string fault_of(const Call& call) {
    try {
      call();
    } catch (const UserError& error) {
      return error.what();
    }
    ADD_FAILURE() << "nothing was thrown";
    return "";
  }

  test::TemporaryDirectory directory_;
  fs::path path_ = directory_ / "file";
};

TEST_F(Input, ReadsAnyPart) {
  write_file(path_, "0123456789");
  const InputFile file(path_);
  EXPECT_EQ(file.size(), 10);
  std::string part(4, ' ');
  file.read_at(3, part.data(), part.size());
  EXPECT_EQ(part, "3456");
  EXPECT_EQ(file.text(), "0123456789");
}

TEST_F(Input, GoesOnWithTheFileThatWasOpenedWhateverBecomesOfItsName) {
  write_file(path_, "first");
  const InputFile file(path_);
  write_file_atomically(path_, "second");
  EXPECT_EQ(file.text(), "first");
  fs::remove(path_);
  EXPECT_EQ(file.text(), "first");
}

TEST_F(Input, AFileThatWasCutSinceIsAFault) {
  write_file(path_, "0123456789");
  const InputFile file(path_);
  fs::resize_file(path_, 4);
  EXPECT_THAT(fault_of([&] { (void)file.text(); }), HasSubstr("file: was cut off at byte 4"));
}

TEST_F(Input, GivesTheBytesFromAnOffsetOnInPieces) {
  std::string bytes;
  for (int i = 0; i < 700000; ++i) {
    bytes += "abcdefg"[i % 7] + std::string(4, static_cast<char>('0' + i % 10));
  }
  write_file(path_, bytes);
  std::string read;
  int pieces = 0;
  InputFile(path_).for_each_piece(11, [&](std::string_view piece) {
    read += piece;
    ++pieces;
  });
  EXPECT_TRUE(read == bytes.substr(11));
  EXPECT_GT(pieces, 1);
}

TEST_F(Input, RefusesWhatIsNoFile) {
  EXPECT_THAT(fault_of([&] { (void)InputFile(path_); }), HasSubstr("No such file"));
  EXPECT_THAT(fault_of([&] { (void)InputFile(directory_.path()); }),
              HasSubstr("not a regular file"));
  EXPECT_THAT(fault_of([] { (void)InputFile("/dev/null"); }), HasSubstr("not a regular file"));
}

}  // namespace
}  // namespace transnormer
