#include "data/file_digests.h"

#include "data/support.h"
#include "util/hash.h"

namespace transnormer {
namespace {

class FileDigestsTest : public testing::Test {
 protected:
  FileDigestsTest() { test::put(path_, "content"); }

  // An index that knows the file by this digest.
  void write_index(const std::string& digest) const {
    const FileIdentity id = identify(path_);
    test::put(dir_ / "index.json",
              R"({"version":1,"digests":{")" + path_.string() + R"(":{"size":)" +
                  std::to_string(id.size) + R"(,"modified_ns":)" + std::to_string(id.modified_ns) +
                  R"(,"changed_ns":)" + std::to_string(id.changed_ns) + R"(,"inode":)" +
                  std::to_string(id.inode) + R"(,"offset":0,"sha256":")" + digest + "\"}}}");
  }

  test::TemporaryDirectory dir_;
  std::filesystem::path path_ = dir_ / "file";
};

TEST_F(FileDigestsTest, AreThoseOfTheContent) {
  FileDigests digests(dir_.path());
  EXPECT_EQ(digests.digest(InputFile(path_)), sha256("content"));
  EXPECT_EQ(digests.digest(InputFile(path_), 3), sha256("tent"));
  EXPECT_EQ(digests.digest(std::vector{path_, path_}),
            sha256(sha256("content") + '\n' + sha256("content") + '\n'));
}

TEST_F(FileDigestsTest, AreNotComputedAgainForAnUnchangedFile) {
  write_index("remembered");
  EXPECT_EQ(FileDigests(dir_.path()).digest(InputFile(path_)), "remembered");
}

TEST_F(FileDigestsTest, AreComputedAgainForAChangedFileOrAnotherPart) {
  write_index("remembered");
  EXPECT_EQ(FileDigests(dir_.path()).digest(InputFile(path_), 3), sha256("tent"));
  test::put(path_, "changed content");
  EXPECT_EQ(FileDigests(dir_.path()).digest(InputFile(path_)), sha256("changed content"));
}

TEST_F(FileDigestsTest, AreNotRememberedForAFileWrittenAMomentAgo) {
  FileDigests digests(dir_.path());
  static_cast<void>(digests.digest(InputFile(path_)));
  digests.save();
  EXPECT_FALSE(std::filesystem::exists(dir_ / "index.json"));
}

TEST_F(FileDigestsTest, AreRememberedForASettledFile) {
  const std::filesystem::path own = TRANSNORMER_SOURCE_DIR "/CMakeLists.txt";
  FileDigests digests(dir_.path());
  const std::string digest = digests.digest(InputFile(own));
  digests.save();
  EXPECT_THAT(read_file(dir_ / "index.json"), testing::HasSubstr(digest));
  EXPECT_EQ(FileDigests(dir_.path()).digest(InputFile(own)), digest);
}

TEST_F(FileDigestsTest, AreNotMissedWhereTheyCannotBeKept) {
  const std::filesystem::path place(std::string(300, 'x'));  // too long a name to look up
  FileDigests digests(dir_ / place);
  static_cast<void>(digests.digest(InputFile(TRANSNORMER_SOURCE_DIR "/CMakeLists.txt")));
  EXPECT_NO_THROW(digests.save());
}

TEST_F(FileDigestsTest, SurviveADamagedIndex) {
  for (const char* index : {"", "{", "[]", R"({"version":1,"digests":{"x":{"size":"big"}}})"}) {
    test::put(dir_ / "index.json", index);
    EXPECT_EQ(FileDigests(dir_.path()).digest(InputFile(path_)), sha256("content")) << index;
  }
}

TEST_F(FileDigestsTest, LeaveAForeignFileUnderTheNameOfTheIndexAlone) {
  for (const char* index :
       {"{\"title\": \"mine\"}", "some notes", R"({"version":9,"digests":{}})"}) {
    test::put(dir_ / "index.json", index);
    FileDigests digests(dir_.path());
    static_cast<void>(digests.digest(InputFile(TRANSNORMER_SOURCE_DIR "/CMakeLists.txt")));
    digests.save();
    EXPECT_EQ(read_file(dir_ / "index.json"), index);
  }
}

TEST_F(FileDigestsTest, AreNotWrittenWhileAnotherHoldsTheCache) {
  FileDigests digests(dir_.path());
  static_cast<void>(digests.digest(InputFile(TRANSNORMER_SOURCE_DIR "/CMakeLists.txt")));
  {
    const FileLock lock = lock_cache(dir_.path());
    digests.save();
    EXPECT_FALSE(std::filesystem::exists(dir_ / "index.json"));
  }
  digests.save();
  EXPECT_TRUE(std::filesystem::exists(dir_ / "index.json"));
}

}  // namespace
}  // namespace transnormer
