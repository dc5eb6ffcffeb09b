#include "config/layers.h"

#include <unistd.h>

#include "config/support.h"

namespace transnormer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(ConfigFiles, AreReadOnceHoweverOftenTheyAreIncluded) {
  const TemporaryDirectory dir;
  const auto name = [](int i) { return "level" + std::to_string(i) + ".json"; };
  for (int i = 0; i < 26; ++i) {
    const std::string next = '"' + name(i + 1) + '"';
    dir.write(name(i), R"({"include": [)" + next + ", " + next + "]}");
  }
  dir.write(name(26), R"({"train": {"seed": 7}})");
  std::vector<std::string> faults;
  EXPECT_EQ(collect_files(dir.path() / name(0), faults).size(), 27U);
  EXPECT_THAT(faults, testing::IsEmpty());
  EXPECT_EQ(load_config(dir.path() / name(0)).config.train.seed, 7);
}

TEST(ConfigFiles, CountWhereTheyAreIncludedLast) {
  const TemporaryDirectory dir;
  dir.write("base.json", R"({"train": {"seed": 1, "steps": 1}})");
  dir.write("a.json", R"({"include": "base.json", "train": {"seed": 2}})");
  dir.write("b.json", R"({"include": "base.json", "train": {"steps": 3}})");
  const auto file = dir.write("top.json", R"({"include": ["a.json", "b.json"]})");
  const Config config = load_config(file).config;
  EXPECT_EQ(config.train.seed, 1);
  EXPECT_EQ(config.train.steps, 3);
}

TEST(ConfigFiles, MayIncludeEachOtherInChainsThatEnd) {
  const TemporaryDirectory dir;
  const auto write_chain = [&](int files) {
    for (int i = 1; i < files; ++i) {
      dir.write(std::to_string(i), R"({"include": ")" + std::to_string(i + 1) + "\"}");
    }
    dir.write(std::to_string(files), "{}");
  };
  write_chain(32);
  EXPECT_THAT(faults_of_file(dir.path() / "1"), testing::IsEmpty());
  write_chain(2000);
  EXPECT_THAT(faults_of_file(dir.path() / "1"),
              ElementsAre(AllOf(HasSubstr("/32:1: include: \"33\""), HasSubstr("more than 32"))));
  // The same files, first met one by one from the end.
  std::string all;
  for (int i = 40; i >= 1; --i) {
    all += (all.empty() ? "\"" : ", \"") + std::to_string(i) + '"';
  }
  write_chain(40);
  EXPECT_THAT(faults_of_file(dir.write("top", R"({"include": [)" + all + "]}")),
              testing::Contains(HasSubstr("more than 32")));
}

TEST(ConfigFiles, ThatAreMissingAreToldWithWhatIncludesThemAndWhere) {
  const TemporaryDirectory dir;
  dir.write("parts/middle.json", "{\n\n\"include\": [\"none.json\"]}");
  const auto top = dir.write("top.json", "{\n\"include\": \"parts/middle.json\"}");
  EXPECT_THAT(faults_of_file(top),
              ElementsAre((dir.path() / "parts/middle.json").string() +
                          ":3: include: " + (dir.path() / "parts/none.json").string() +
                          ": cannot be read: No such file or directory"));
}

TEST(ConfigFiles, AreOfALimitedSize) {
  EXPECT_THAT(faults_of_file("/dev/zero"), ElementsAre(HasSubstr("holds more than 16.00 MiB")));
}

TEST(ConfigFiles, IncludeALimitedNumber) {
  const TemporaryDirectory dir;
  std::string list = "0";
  for (int i = 0; i < 1000; ++i) {
    list += ",0";
  }
  EXPECT_THAT(faults_of_file(dir.write("top", R"({"include": [)" + list + "]}")),
              ElementsAre(HasSubstr("include: expected at most 1,000 files, got 1,001")));
}

TEST(ConfigFiles, AreNamedWithoutControlCharacters) {
  const TemporaryDirectory dir;
  dir.write("a", "{}");
  EXPECT_THAT(faults_of_file(dir.write("top", R"({"include": "a\u0000b"})")),
              ElementsAre(HasSubstr("include: expected the path of a config or a list of them, "
                                    "without control characters")));
}

// The path that leads to a pipe which holds this text.
std::string pipe_with(const std::string& text) {
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  EXPECT_EQ(::write(ends[1], text.data(), text.size()), std::ssize(text));
  ::close(ends[1]);
  return "/dev/fd/" + std::to_string(ends[0]);
}

TEST(ConfigPipes, HavePathsFromTheWorkingDirectoryAndNoName) {
  const std::string here = std::filesystem::current_path().string();
  const Config config = load_config(pipe_with(R"({"data": {"train": "t.txt"}})")).config;
  EXPECT_THAT(config.data.train, ElementsAre(here + "/t.txt"));
  EXPECT_EQ(config.run_name, "");
  EXPECT_EQ(load_config(pipe_with(R"({"run_name": "mine"})")).config.run_name, "mine");
  EXPECT_EQ(parse_config(config_to_json(config), "again.json").config.data, config.data);
  EXPECT_THAT(faults_of_file(pipe_with(R"({"include": "not/there.json"})")),
              ElementsAre(HasSubstr("not/there.json: cannot be read")));
}

}  // namespace
}  // namespace transnormer
