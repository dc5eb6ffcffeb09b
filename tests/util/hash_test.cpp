#include "util/hash.h"

#include <gtest/gtest.h>

#include <string>

#include "util/error.h"
#include "util/file.h"
#include "util/temporary_directory.h"

namespace transnormer {
namespace {

// FIPS 180-2, appendix B.
constexpr const char* kAbc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
constexpr const char* kEmpty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

TEST(Sha256, EqualsThePublishedDigests) {
  EXPECT_EQ(sha256("abc"), kAbc);
  EXPECT_EQ(sha256(""), kEmpty);
}

TEST(Sha256, IsTheSameInPieces) {
  Sha256 hash;
  hash.update("a");
  hash.update("");
  hash.update("bc");
  EXPECT_EQ(hash.hex(), kAbc);
}

TEST(Sha256, OfAFileIsThatOfItsBytes) {
  const test::TemporaryDirectory directory;
  write_file(directory / "abc", "abc");
  write_file(directory / "empty", "");
  EXPECT_EQ(sha256(InputFile(directory / "abc")), kAbc);
  EXPECT_EQ(sha256(InputFile(directory / "empty")), kEmpty);
  EXPECT_THROW((void)sha256(InputFile(directory / "absent")), UserError);
}

}  // namespace
}  // namespace transnormer
