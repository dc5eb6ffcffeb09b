// Where texts come from: compressed files, standard input, pipes, the home directory, a part of the
// training text.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "cli/workspace.h"
#include "util/compressed.h"

namespace transnormer {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

const std::vector<Compression> kKinds{Compression::gzip, Compression::xz, Compression::zstd};

nlohmann::json answer_of(const Outcome& outcome) {
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  return nlohmann::json::parse(outcome.out, nullptr, false);
}

// Writes these bytes into a pipe as soon as somebody reads it.
class Feeder {
 public:
  Feeder(const fs::path& pipe, std::string bytes)
      : thread_([pipe, bytes = std::move(bytes)] {
          const int descriptor = ::open(pipe.c_str(), O_WRONLY);
          EXPECT_EQ(::write(descriptor, bytes.data(), bytes.size()), std::ssize(bytes));
          ::close(descriptor);
        }) {}

 private:
  std::jthread thread_;
};

class CompressedTexts : public TrainedRun {};

TEST_F(CompressedTexts, ArePreparedAsThePlainOnesAre) {
  const Workspace& files = workspace();
  const Outcome plain = files.run({"prepare", "tiny.json", "--json"});
  ASSERT_EQ(plain.status, 0) << plain.err;
  for (const Compression kind : kKinds) {
    const std::string end = test::ending_of(kind);
    for (const std::string split : {"train", "valid", "test"}) {
      const std::string text = files.read(split + ".txt");
      const std::size_t middle = text.find('\n', text.size() / 2) + 1;
      files.write(split + end, test::compressed(kind, text.substr(0, middle)) +
                                   test::compressed(kind, text.substr(middle)));
    }
    const Outcome outcome =
        files.run({"prepare", "tiny.json", "--json", "--set", "data.train=trai?" + end, "--set",
                   "data.valid=valid" + end, "--set", "data.test=test" + end});
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_EQ(outcome.out, plain.out);
  }
}

TEST_F(CompressedTexts, AreEvaluatedAsThePlainOneIs) {
  const Workspace& files = workspace();
  const std::string text = files.read("test.txt");
  const Outcome plain = files.run({"eval", "run", "--text", "test.txt", "--json"});
  EXPECT_EQ(answer_of(plain)["bytes"], text.size());
  for (const Compression kind : kKinds) {
    files.write("other_name", test::compressed(kind, text));
    EXPECT_EQ(files.run({"eval", "run", "--text", "other_name", "--json"}).out, plain.out);
    EXPECT_EQ(files.run({"eval", "run", "--text", "-", "--json"}, test::compressed(kind, text)).out,
              plain.out);
  }
}

TEST_F(CompressedTexts, MakeTheSameTokenizer) {
  const Workspace& files = workspace();
  files.write("t.xz", test::xz_made(files.read("train.txt"), 512));
  for (const char* text : {"data.train=train.txt", "data.train=t.xz"}) {
    ASSERT_EQ(files.run({"tokenizer", "train", "tiny.json", "--out", "made", "--set", text}).status,
              0);
    files.write(text, files.read("made"));
    fs::remove(files / "made");
  }
  EXPECT_EQ(files.read("data.train=t.xz"), files.read("data.train=train.txt"));
}

// The stream of tokens is what is trained on, and that is the same.
TEST_F(CompressedTexts, AreTheSameTextToAResumedRun) {
  const Workspace& files = workspace();
  files.write("t.gz", test::gzipped(files.read("train.txt")));
  const Arguments go_on{"train", "tiny.json", "--run-dir",     "fork",  "--resume",
                        "run",   "--set",     "train.steps=7", "--set", "data.train=t.gz"};
  const Outcome same = files.run(go_on);
  EXPECT_EQ(same.status, 0) << same.err;
  files.write("t.gz", test::gzipped("another text\n"));
  Arguments again = go_on;
  again[3] = "fork2";
  EXPECT_THAT(files.run(again).err, HasSubstr("data.train: its text is not the one"));
}

TEST_F(CompressedTexts, ThatAreCutOrDamagedAreRefusedByOneLine) {
  const Workspace& files = workspace();
  for (const Compression kind : kKinds) {
    const std::string bytes = test::compressed(kind, files.read("train.txt"));
    const std::string name = std::string("bad") + test::ending_of(kind);
    const std::vector<std::string> command{"prepare", "tiny.json", "--set", "data.train=" + name};
    for (const std::size_t size :
         {std::size_t{0}, std::size_t{1}, std::size_t{5}, bytes.size() / 2, bytes.size() - 1}) {
      files.write(name, bytes.substr(0, size));
      expect_refused(files, command, {name + ": is cut off"});
    }
    files.write(name, bytes + "more");
    expect_refused(files, command, {name + ": holds something else behind its"});
    std::string damaged = bytes;
    damaged[bytes.size() / 2] = static_cast<char>(damaged[bytes.size() / 2] ^ 8);
    files.write(name, damaged);
    expect_refused(files, command, {name + ": is damaged"});
    expect_refused(files, {"eval", "run", "--text", name}, {name + ": is damaged"});
    expect_refused(files, {"eval", "run", "--text", "-"}, {"standard input: is damaged"}, damaged);
  }
}

class TextsReadOnce : public TrainedRun {};

TEST_F(TextsReadOnce, ComeFromStandardInputOrAPipeWhereOnePassIsEnough) {
  const Workspace& files = workspace();
  const std::string text = files.read("test.txt");
  const std::string expected = files.run({"eval", "run", "--text", "test.txt", "--json"}).out;
  for (const char* name : {"-", "/dev/stdin"}) {
    EXPECT_EQ(files.run({"eval", "run", "--text", name, "--json"}, text).out, expected);
  }
  fs::remove(files / "pipe");
  ASSERT_EQ(::mkfifo((files / "pipe").c_str(), 0600), 0);
  {
    const Feeder feeder(files / "pipe", text);
    EXPECT_EQ(files.run({"eval", "run", "--text", "pipe", "--json"}).out, expected);
  }
  {
    const Feeder feeder(files / "pipe", test::zstd_made(text));
    EXPECT_EQ(files.run({"eval", "run", "--text", "pipe", "--json"}).out, expected);
  }
  fs::remove(files / "pipe");
  expect_refused(files, {"eval", "run", "--text", "-"}, {"standard input: is empty"});
}

TEST_F(TextsReadOnce, MayBeAPrompt) {
  const Workspace& files = workspace();
  const Arguments begin{"generate", "run", "--max-tokens", "3", "--temperature", "0"};
  const auto continued = [&](const char* option, const std::string& value,
                             const std::string& input = "") {
    Arguments all = begin;
    all.insert(all.end(), {option, value});
    const Outcome outcome = files.run(all, input);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return outcome.out;
  };
  const std::string prompt = "the river\nran over";
  files.write("prompt.xz", test::xz_made(prompt));
  const std::string expected = continued("--prompt", prompt);
  EXPECT_THAT(expected, testing::StartsWith(prompt));
  EXPECT_EQ(continued("--prompt-file", "prompt.xz"), expected);
  EXPECT_EQ(continued("--prompt-file", "-", prompt), expected);
  EXPECT_EQ(continued("--prompt-file", "-", test::gzipped(prompt)), expected);
}

TEST_F(TextsReadOnce, AreRefusedWhereATextIsReadSeveralTimes) {
  const Workspace& files = workspace();
  expect_refused(files, {"prepare", "tiny.json", "--set", "data.train=-"},
                 {"data.train: standard input can be read once only"}, "the river\n");
  expect_refused(files, {"train", "tiny.json", "--run-dir", "new", "--set", "data.valid=-"},
                 {"data.valid: standard input can be read once only"}, "the river\n");
  ASSERT_EQ(::mkfifo((files / "fifo").c_str(), 0600), 0);
  const Outcome outcome = files.run({"prepare", "tiny.json", "--set", "data.train=fifo"});
  fs::remove(files / "fifo");
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("fifo can be read once only"),
                                 HasSubstr("write it to a file and name that")));
}

TEST(HomeDirectory, IsWhatATildeStandsForInOptionsAndConfigs) {
  const Workspace files;
  const std::string before = getenv("HOME") != nullptr ? getenv("HOME") : "/";
  files.write("home/mine.json", R"({"include": "~/base.json"})");
  files.write("home/base.json", files.read("tiny.json"));
  files.write("home/train.txt", files.read("train.txt"));
  setenv("HOME", (files / "home").c_str(), 1);
  const Outcome outcome =
      files.run({"config", "show", "~/mine.json", "--set", "data.train=~/train.txt"});
  const Outcome literal = files.run({"config", "show", "./~/mine.json"});
  setenv("HOME", before.c_str(), 1);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr((files / "home/train.txt").string()));
  EXPECT_EQ(literal.status, 2);
  EXPECT_THAT(literal.err, HasSubstr("./~/mine.json"));
}

class HeldOut : public testing::Test {
 protected:
  static Arguments with_holdout(Arguments arguments, const std::string& share = "0.2") {
    arguments.insert(arguments.end(), {"--set", "data.valid=", "--set", "data.holdout=" + share});
    return arguments;
  }
  Workspace files_;
};

TEST_F(HeldOut, PartsOfTheTrainingTextAreShownTrainedOnAndValidated) {
  const auto splits =
      answer_of(files_.run(with_holdout({"prepare", "tiny.json", "--json"})))["splits"];
  const int train = splits["train"]["lines"];
  const int valid = splits["valid"]["lines"];
  EXPECT_EQ(train + valid, 120);
  EXPECT_NEAR(valid, 24, 4);
  const Outcome trained = files_.run(with_holdout({"train", "tiny.json", "--run-dir", "run"}));
  ASSERT_EQ(trained.status, 0) << trained.err;
  EXPECT_THAT(files_.read("run/metrics.jsonl"), HasSubstr("\"kind\":\"valid\""));
  const auto scored = answer_of(files_.run({"eval", "run", "--split", "valid", "--json"}));
  EXPECT_EQ(scored["tokens"], splits["valid"]["tokens"]);
}

TEST_F(HeldOut, PartsStayTheSameOnResume) {
  ASSERT_EQ(files_.run(with_holdout({"train", "tiny.json", "--run-dir", "run"})).status, 0);
  const Arguments more{"train", "tiny.json", "--run-dir", "run", "--set", "train.steps=8"};
  expect_refused(files_, with_holdout(more, "0.3"), {"data.holdout: 0.2 -> 0.3"});
  Arguments given = more;
  given.insert(given.end(), {"--set", "data.holdout=0.2"});  // beside the config's data.valid
  const Outcome moved = files_.run(given);
  EXPECT_EQ(moved.status, 2);
  EXPECT_THAT(moved.err, HasSubstr("data.valid: is given now, and was not when it was saved"));
  EXPECT_EQ(files_.run(with_holdout(more)).status, 0);
}

TEST_F(HeldOut, APartThatWouldBeEmptyIsRefused) {
  expect_refused(files_, with_holdout({"prepare", "tiny.json"}, "0.00001"),
                 {"of this text leaves no word for valid"});
}

}  // namespace
}  // namespace transnormer
