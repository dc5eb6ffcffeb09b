#include "data/text_files.h"

#include <sys/stat.h>

#include "data/support.h"

namespace transnormer {
namespace {

using testing::HasSubstr;

class TextFiles : public testing::Test {
 protected:
  TextFiles() {
    for (const char* name : {"b.txt", "a.txt", "c.txt", "d.md", "odd[1].txt"}) {
      test::put(dir_ / name, "x\n");
    }
    std::filesystem::create_directory(dir_ / "folder.txt");
  }
  [[nodiscard]] std::vector<std::string> names(const std::vector<std::string>& entries) const {
    std::vector<std::string> paths;
    for (const std::string& entry : entries) {
      paths.push_back((dir_ / entry).string());
    }
    std::vector<std::string> found;
    for (const auto& path : find_text_files(paths, "data.train")) {
      found.push_back(path.filename());
    }
    return found;
  }
  [[nodiscard]] std::string fault(const std::string& entry) const {
    return test::fault_of([&] { static_cast<void>(names({entry})); });
  }

  test::TemporaryDirectory dir_;
};

TEST_F(TextFiles, AreInTheOrderOfTheListAndGlobsSorted) {
  EXPECT_THAT(names({"d.md", "?.txt", "a.txt"}),
              testing::ElementsAre("d.md", "a.txt", "b.txt", "c.txt", "a.txt"));
}

TEST_F(TextFiles, AreTakenByNameWhereTheNameLooksLikeAGlob) {
  EXPECT_THAT(names({"odd[1].txt"}), testing::ElementsAre("odd[1].txt"));
}

TEST_F(TextFiles, AreFoundWhereABackslashTakesAWildcardByItself) {
  const auto folder = dir_ / "run[1]";
  std::filesystem::create_directory(folder);
  for (const char* name : {"part1.txt", "part2.txt", "part[1].txt", "a\\b.txt"}) {
    test::put(folder / name, "x\n");
  }
  EXPECT_THAT(names({R"(run\[1\]/part?.txt)"}), testing::ElementsAre("part1.txt", "part2.txt"));
  EXPECT_THAT(names({R"(run\[1\]/part1.txt)"}), testing::ElementsAre("part1.txt"));
  EXPECT_THAT(names({R"(run\[1\]/part[1].txt)"}), testing::ElementsAre("part[1].txt"));
  EXPECT_THAT(names({R"(run[1]/a\b.txt)"}), testing::ElementsAre(R"(a\b.txt)"));
  EXPECT_THAT(fault(R"(run\[1\]/none.txt)"), HasSubstr("run[1]/none.txt: there is no such file"));
  EXPECT_THAT(fault(R"(run\[1\]/none*)"), HasSubstr("no file matches"));
}

TEST_F(TextFiles, AreRefusedWithTheKeyWhereThereIsNoneToRead) {
  EXPECT_THAT(fault("none.txt"), HasSubstr("data.train: "));
  EXPECT_THAT(fault("none.txt"), HasSubstr("none.txt: there is no such file"));
  EXPECT_THAT(fault("*.none"), HasSubstr("no file matches"));
  EXPECT_THAT(fault("folder.txt"), HasSubstr("is a directory"));
  EXPECT_THAT(fault("folder*"), HasSubstr("no file matches"));
  EXPECT_THAT(
      test::fault_of([] { static_cast<void>(find_text_files({"/dev/null"}, "data.test")); }),
      HasSubstr("data.test: /dev/null is not a regular file"));
}

TEST_F(TextFiles, ThatCanBeReadOnceOnlyAreRefusedAndToldWhy) {
  ASSERT_EQ(::mkfifo((dir_ / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(fault("pipe"), testing::AllOf(HasSubstr("pipe can be read once only"),
                                            HasSubstr("write it to a file")));
  EXPECT_THAT(test::fault_of([] { static_cast<void>(find_text_files({"-"}, "data.valid")); }),
              testing::StartsWith("data.valid: standard input can be read once only"));
}

TEST_F(TextFiles, ChangeTheirIdentityWhenWrittenEvenAtTheSameSizeAndTime) {
  const auto path = dir_ / "a.txt";
  const FileIdentity before = identify(path);
  EXPECT_EQ(identify(path), before);
  const auto time = std::filesystem::last_write_time(path);
  FileIdentity after = before;
  // The change time moves with the file system's clock, which ticks every few milliseconds.
  for (int attempt = 0; attempt < 1'000'000 && after.changed_ns == before.changed_ns; ++attempt) {
    test::put(path, "y\n");
    std::filesystem::last_write_time(path, time);
    after = identify(path);
  }
  EXPECT_EQ(after.modified_ns, before.modified_ns);
  EXPECT_NE(after, before);
}

}  // namespace
}  // namespace transnormer
