#include "util/append_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "util/error.h"
#include "util/file.h"
#include "util/file_size_limit.h"
#include "util/temporary_directory.h"

namespace transnormer {
namespace {

using test::FileSizeLimit;
using test::TemporaryDirectory;

TEST(AppendLine, MakesTheFileAndAddsBehindWhatIsThere) {
  const TemporaryDirectory directory;
  const auto file = directory.path() / "lines";
  append_line(file, "{1}", "{");
  append_line(file, "{2}", "{");
  EXPECT_EQ(read_file(file), "{1}\n{2}\n");
}

TEST(AppendLine, StartsANewLineBehindATornOne) {
  const TemporaryDirectory directory;
  const auto file = directory.path() / "lines";
  write_file(file, "{1}\n{2");
  append_line(file, "{3}", "{");
  EXPECT_EQ(read_file(file), "{1}\n{2\n{3}\n");
}

TEST(AppendLine, LeavesAFileThatHoldsSomethingElse) {
  const TemporaryDirectory directory;
  const auto file = directory.path() / "lines";
  write_file(file, "# my notes\n");
  EXPECT_THROW(append_line(file, "{1}", "{"), WriteError);
  EXPECT_EQ(read_file(file), "# my notes\n");
  std::filesystem::create_directory(directory.path() / "folder");
  EXPECT_THROW(append_line(directory.path() / "folder", "{1}", "{"), WriteError);
  ASSERT_EQ(::mkfifo((directory.path() / "pipe").c_str(), 0600), 0);
  EXPECT_THROW(append_line(directory.path() / "pipe", "{1}", "{"), WriteError);
  EXPECT_THROW(append_line(directory.path() / "none" / "lines", "{1}", "{"), WriteError);
}

TEST(AppendLine, TakesBackWhatDidNotFit) {
  const TemporaryDirectory directory;
  const auto file = directory.path() / "lines";
  append_line(file, "{1}", "{");
  {
    const FileSizeLimit limit(7);
    EXPECT_THROW(append_line(file, "{22222222}", "{"), WriteError);
  }
  EXPECT_EQ(read_file(file), "{1}\n");
}

TEST(AppendLine, LinesOfManyProcessesStandWhole) {
  const TemporaryDirectory directory;
  const auto file = directory.path() / "lines";
  constexpr int kProcesses = 4;
  constexpr int kLines = 25;
  std::vector<pid_t> processes;
  for (int process = 0; process < kProcesses; ++process) {
    processes.push_back(::fork());
    if (processes.back() == 0) {
      for (int i = 0; i < kLines; ++i) {
        append_line(file, "{" + std::string(3000, static_cast<char>('a' + process)) + "}", "{");
      }
      ::_exit(0);
    }
  }
  for (const pid_t process : processes) {
    int status = 1;
    ASSERT_EQ(::waitpid(process, &status, 0), process);
    ASSERT_EQ(status, 0);
  }
  std::string rest = read_file(file);
  int lines = 0;
  while (!rest.empty()) {
    const std::string line = rest.substr(0, rest.find('\n'));
    ASSERT_EQ(line, "{" + std::string(3000, line.at(1)) + "}");
    rest.erase(0, line.size() + 1);
    ++lines;
  }
  EXPECT_EQ(lines, kProcesses * kLines);
}

}  // namespace
}  // namespace transnormer
