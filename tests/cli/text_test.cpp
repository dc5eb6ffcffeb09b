// Texts as they come, and what is asked of commands while they read them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "cli/workspace.h"

namespace transnormer {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

const std::string kMark = "\xEF\xBB\xBF";

// The file of a split in the cache, once it is there.
fs::path cache_of(const Workspace& workspace, const std::string& split) {
  for (const auto& entry : fs::directory_iterator(workspace / "cache")) {
    const std::string name = entry.path().filename();
    if (name.starts_with(split + "-") && name.ends_with(".tokens")) {
      return entry.path();
    }
  }
  return {};
}

bool wait_until(const std::function<bool()>& holds) {
  for (int tries = 0; tries < 3000; ++tries) {
    if (holds()) {
      return true;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

TEST(Text, AByteOrderMarkIsNoPartOfIt) {
  const Workspace workspace;
  workspace.write("d", kMark + "the 1\ncat 1\n");
  EXPECT_EQ(workspace.run({"tokenizer", "encode", "d"}, "the cat\nthe\n").out, "4 5\n4\n");
  EXPECT_EQ(workspace.run({"tokenizer", "encode", "d"}, kMark + "the cat\n").out, "4 5\n");
  EXPECT_EQ(workspace.run({"tokenizer", "decode", "d"}, kMark + "4 5\n").out, "the cat\n");
  workspace.write("text", "the cat\n");
  workspace.write("marked", kMark + "the cat\n");
  std::vector<std::string> answers;
  for (const char* text : {"data.train=text", "data.train=marked"}) {
    answers.push_back(workspace.run({"prepare", "tiny.json", "--json", "--set", text}).out);
  }
  EXPECT_THAT(answers[0], HasSubstr("\"bytes\":8"));
  EXPECT_EQ(answers[1], answers[0]);
}

// Training runs on and on; what becomes of its cache meanwhile must not be trained on.
class TextInUse : public testing::Test {
 protected:
  TextInUse()
      : training_({"train", "tiny.json", "--run-dir", "long", "--set", "train.steps=100000000",
                   "--set", "validation.every=0"},
                  {workspace_.path(), ""}) {}

  void SetUp() override {
    ASSERT_TRUE(wait_until([this] {
      return fs::exists(workspace_ / "long/checkpoints/latest") || !training_.running();
    }));
    ASSERT_TRUE(training_.running()) << training_.wait().err;
  }
  void expect_one_line(const std::string& words) {
    const Outcome outcome = training_.wait();
    EXPECT_EQ(outcome.status, 2) << outcome.err.substr(outcome.err.size() / 2);
    const std::vector<std::string> lines = lines_of(outcome.err);
    int faults = 0;
    for (const std::string& line : lines) {
      faults += line.starts_with("transnormer: ") ? 1 : 0;
    }
    EXPECT_EQ(faults, 1);
    EXPECT_THAT(lines.back(), HasSubstr(words));
  }

  Workspace workspace_;
  Program training_;
};

TEST_F(TextInUse, EndsTrainingInOneLineWhereItIsCut) {
  fs::resize_file(cache_of(workspace_, "train"), 1030);
  expect_one_line(": was cut off at byte ");
}

TEST_F(TextInUse, EndsTrainingInOneLineWhereItIsOverwritten) {
  const fs::path cache = cache_of(workspace_, "train");
  std::string bytes = workspace_.read(fs::relative(cache, workspace_.path()));
  std::swap(bytes[1024], bytes[1030]);
  std::swap(bytes[1036], bytes[1050]);
  workspace_.write(fs::relative(cache, workspace_.path()), bytes);
  expect_one_line(" while it was in use");
}

// Long enough to be met while it is prepared.
void write_long_text(const Workspace& workspace) {
  std::string text;
  for (int i = 0; i < 4000000; ++i) {
    text += "w" + std::to_string(i * 7919LL % 1000003) + (i % 9 == 0 ? "\n" : " ");
  }
  workspace.write("long.txt", text);
}

std::vector<std::string> names_in(const fs::path& directory) {
  std::vector<std::string> names;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(directory, none)) {
    names.push_back(entry.path().filename());
  }
  return names;
}

TEST(TextBeingPrepared, StopsWithoutLeftoversAndOutlivesRequestsToSave) {
  const Workspace workspace;
  write_long_text(workspace);
  workspace.write("d", "w1 1\n");
  const Arguments prepare{"prepare", "tiny.json",        "--set", "data.train=long.txt",
                          "--set",   "tokenizer.path=d", "--set", "train.threads=1"};
  const auto writes = [&workspace] {
    return std::ranges::any_of(names_in(workspace / "cache"), [](const std::string& name) {
      return name.starts_with("train-") && name.find(".tmp.") != std::string::npos;
    });
  };
  {
    Program program(prepare, {workspace.path(), ""});
    ASSERT_TRUE(wait_until(writes));
    program.send(SIGUSR1);
    program.send(SIGTERM);
    const Outcome outcome = program.wait();
    EXPECT_EQ(outcome.status, 143) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("transnormer: stopped by SIGTERM"));
  }
  EXPECT_THAT(names_in(workspace / "cache"), testing::ElementsAre("lock"));
  {
    Program program(prepare, {workspace.path(), ""});
    ASSERT_TRUE(wait_until(writes));
    program.send(SIGKILL);
    EXPECT_EQ(program.wait().status, -1);
  }
  EXPECT_TRUE(writes()) << "what a killed writer leaves";
  EXPECT_EQ(workspace.run({"prepare", "tiny.json"}).status, 0);
  EXPECT_FALSE(writes());
}

TEST(TextBeingLearned, StopsTheLibraryToo) {
  const Workspace workspace;
  std::string letters;
  for (unsigned i = 0, state = 1; i < 1000000; ++i) {
    state = state * 1664525U + 1013904223U;
    letters += static_cast<char>('a' + (state >> 20) % 26);
  }
  workspace.write("letters.txt", letters);
  Program program({"tokenizer", "train", "tiny.json", "--out", "made.model", "--set",
                   "data.train=letters.txt", "--set", "tokenizer.type=sentencepiece", "--set",
                   "tokenizer.model_type=bpe", "--set", "tokenizer.vocab_size=900000"},
                  {workspace.path(), ""});
  const auto processes_here = [&workspace] {
    int processes = 0;
    for (const auto& entry : fs::directory_iterator("/proc")) {
      std::error_code gone;
      processes += fs::read_symlink(entry.path() / "cwd", gone) == workspace.path() ? 1 : 0;
    }
    return processes;
  };
  ASSERT_TRUE(wait_until([&] { return processes_here() == 2; }));
  program.send(SIGINT);
  EXPECT_EQ(program.wait().status, 130);
  EXPECT_TRUE(wait_until([&] { return processes_here() == 0; }));
  EXPECT_FALSE(std::ranges::any_of(names_in(workspace.path()), [](const std::string& name) {
    return name.starts_with("made.model");
  }));
}

class TextBits : public TrainedRun {
 protected:
  static nlohmann::json bits_of(const std::string& text, const std::string& set) {
    workspace().write("scored.txt", text);
    Arguments arguments{"eval", "run", "--text", "scored.txt", "--json", "--device", "cpu"};
    if (!set.empty()) {
      arguments.insert(arguments.end(), {"--set", set});
    }
    const Outcome outcome = workspace().run(arguments);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return nlohmann::json::parse(outcome.out).at("bits_per_byte");
  }
};

TEST_F(TextBits, AreToldWhereTheTokensTellTheText) {
  const nlohmann::json plain = bits_of("the river ran\nover stones\n", "");
  ASSERT_TRUE(plain.is_number());
  EXPECT_EQ(bits_of(kMark + "the river ran\nover stones\n", ""), plain);
  EXPECT_TRUE(bits_of(" the river ran \n \n over stones \n", "").is_number());
  for (const char* text : {"the  river\n", "the river\n stones\n", "the river\nran"}) {
    EXPECT_TRUE(bits_of(text, "").is_null()) << text;
  }
  EXPECT_TRUE(bits_of("the river\r\nran\r\n", "data.strip_cr=true").is_null());
  workspace().write("scored.txt", "the  river\n");
  EXPECT_THAT(workspace().run({"eval", "run", "--text", "scored.txt", "--device", "cpu"}).out,
              HasSubstr("not defined: the tokens of some lines read as something else"));
}

TEST_F(TextBits, APromptIsReadAsTextsAre) {
  std::vector<std::string> answers;
  for (const std::string& prompt : {std::string("the river\nran"), kMark + "the river\nran"}) {
    workspace().write("prompt.txt", prompt);
    const Outcome outcome =
        workspace().run({"generate", "run", "--prompt-file", "prompt.txt", "--max-tokens", "5",
                         "--temperature", "0", "--device", "cpu"});
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    answers.push_back(outcome.out.substr(prompt.size()));
  }
  EXPECT_EQ(answers[1], answers[0]);
}

}  // namespace
}  // namespace transnormer
