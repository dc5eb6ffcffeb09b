#include "cli/workspace.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <sstream>
#include <stdexcept>

namespace transnormer {
namespace {

constexpr const char* kConfig = R"({
  // Small enough for a second on one core.
  "model": {"variant": "custom", "layers": 2, "dim": 16, "heads": 2,
            "early": {"attention": "diag", "block": 8}},
  "data": {"train": "train.txt", "valid": "valid.txt", "test": "test.txt",
           "cache_dir": "cache", "tokens_per_sample": 24},
  "schedule": {"warmup_steps": 2},
  "train": {"steps": 6, "global_batch_size": 4, "threads": 1, "device": "cpu"},
  "validation": {"every": 3},
  "checkpoint": {"every": 3},
  "log": {"every": 1, "grad_stats_every": 2}
})";

std::string some_text(int lines, unsigned state) {
  static const std::vector<std::string> words{"the",  "river", "ran",  "over", "stones", "and",
                                              "sang", "to",    "hill", "at",   "dawn",   "."};
  std::string text;
  for (int line = 0; line < lines; ++line) {
    const unsigned length = 3 + (state >> 16) % 9;
    for (unsigned i = 0; i < length; ++i) {
      state = state * 1103515245U + 12345U;
      text += (i == 0 ? "" : " ") + words[(state >> 16) % words.size()];
    }
    text += '\n';
  }
  return text;
}

}  // namespace

Workspace::Workspace() {
  std::string name = (std::filesystem::temp_directory_path() / "transnormer-test-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) {
    throw std::runtime_error("no temporary directory");
  }
  path_ = name;
  write("tiny.json", kConfig);
  write("train.txt", some_text(120, 1));
  write("valid.txt", some_text(20, 2));
  write("test.txt", some_text(20, 3));
}

Workspace::~Workspace() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

void Workspace::write(const std::string& name, const std::string& bytes) const {
  std::filesystem::create_directories((path_ / name).parent_path());
  std::ofstream(path_ / name, std::ios::binary) << bytes;
}

std::string Workspace::read(const std::string& name) const {
  std::ifstream file(path_ / name, std::ios::binary);
  EXPECT_TRUE(file) << name;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

Outcome Workspace::run(const Arguments& arguments, const std::string& input) const {
  return run_program(arguments, {path_, input});
}

std::map<std::string, std::string> Workspace::content() const {
  std::map<std::string, std::string> content;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(path_)) {
    const std::string name = entry.path().lexically_relative(path_).string();
    if (name.starts_with("cache") || name.ends_with(".lock")) {
      continue;
    }
    if (entry.is_symlink()) {
      content[name] = "-> " + std::filesystem::read_symlink(entry.path()).string();
    } else if (entry.is_regular_file()) {
      content[name] = read(name);
    }
  }
  return content;
}

void TrainedRun::SetUp() {
  if (!workspace_) {
    auto fresh = std::make_unique<Workspace>();
    const Outcome outcome = fresh->run({"train", "tiny.json", "--run-dir", "run"});
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    workspace_ = std::move(fresh);
  }
}

void expect_refused(const Workspace& workspace, const Arguments& arguments,
                    const std::vector<std::string>& words_of_faults, const std::string& input) {
  std::string command;
  for (const std::string& argument : arguments) {
    command += argument + ' ';
  }
  SCOPED_TRACE(command);
  const auto before = workspace.content();
  const Outcome outcome = workspace.run(arguments, input);
  EXPECT_EQ(outcome.status, 2);
  EXPECT_EQ(outcome.out, "");
  // What was prepared before the fault showed may be told.
  std::vector<std::string> lines = lines_of(outcome.err);
  std::erase_if(lines,
                [](const std::string& line) { return line.find(" info  ") != std::string::npos; });
  ASSERT_EQ(lines.size(), words_of_faults.size()) << outcome.err;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    EXPECT_THAT(lines[i], testing::StartsWith("transnormer: "));
    EXPECT_THAT(lines[i], testing::HasSubstr(words_of_faults[i]));
  }
  EXPECT_TRUE(workspace.content() == before) << "files were changed";
}

}  // namespace transnormer
