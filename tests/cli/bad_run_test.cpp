// Faults of run directories: taken, not to be written, of another run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>

#include "cli/workspace.h"

namespace transnormer {
namespace {

namespace fs = std::filesystem;

class BadRun : public TrainedRun {
 protected:
  static void refuse_resume(const std::string& assignment, const std::string& words) {
    expect_refused(workspace(), {"train", "tiny.json", "--run-dir", "run", "--set", assignment},
                   {words});
  }
};

TEST_F(BadRun, ALockedRunDirectoryIsRefused) {
  Program first({"train", "tiny.json", "--run-dir", "locked", "--set", "train.steps=1000000",
                 "--set", "validation.every=0", "--set", "log.every=1"},
                {workspace().path(), ""});
  const auto trains = [] {
    std::error_code none;
    const auto size = fs::file_size(workspace() / "locked/metrics.jsonl", none);
    return !none && size > 0;
  };
  while (first.running() && !trains()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  ASSERT_TRUE(first.running()) << first.wait().err;
  const Outcome second = workspace().run({"train", "tiny.json", "--run-dir", "locked"});
  EXPECT_EQ(second.status, 2);
  ASSERT_EQ(lines_of(second.err).size(), 1U) << second.err;
  EXPECT_THAT(second.err, testing::HasSubstr("locked"));
  EXPECT_TRUE(first.running());
  first.send(SIGTERM);
  EXPECT_EQ(first.wait().status, 143);
  EXPECT_TRUE(fs::exists(workspace() / "locked/checkpoints/latest/manifest.json"));
  fs::remove_all(workspace() / "locked");
}

TEST_F(BadRun, NeverRefusesADirectoryThatHoldsARun) {
  expect_refused(workspace(), {"train", "tiny.json", "--run-dir", "run", "--resume", "never"},
                 {"run"});
}

TEST_F(BadRun, AResumeRefusesKeysThatChangeTheModelOrTheOrder) {
  refuse_resume("model.dim=32", "model.dim");
  refuse_resume("model.dropout=0.2", "model.dropout");
  refuse_resume("train.seed=2", "train.seed");
  refuse_resume("train.global_batch_size=8", "train.global_batch_size");
  refuse_resume("data.tokens_per_sample=16", "data.tokens_per_sample");
}

TEST_F(BadRun, AResumeRefusesOtherText) {
  refuse_resume("data.train=valid.txt", "data.train");
}

TEST_F(BadRun, AResumeRefusesEveryChangedKeyInOneGo) {
  expect_refused(
      workspace(),
      {"train", "tiny.json", "--run-dir", "run", "--set", "model.dim=32", "--set", "train.seed=2"},
      {"model.dim", "train.seed"});
}

TEST_F(BadRun, PlacesThatCannotBeWrittenAreNamed) {
  expect_refused(workspace(), {"train", "tiny.json", "--run-dir", "train.txt"}, {"train.txt"});
  expect_refused(workspace(), {"train", "tiny.json", "--run-dir", "train.txt/run"}, {"train.txt"});
  expect_refused(workspace(), {"train", "tiny.json", "--run-dir", "/proc/run"}, {"/proc/run"});
  expect_refused(workspace(), {"prepare", "tiny.json", "--set", "data.cache_dir=/proc/cache"},
                 {"/proc/cache"});
  expect_refused(workspace(), {"tokenizer", "train", "tiny.json", "--out", "/proc/words.txt"},
                 {"/proc/words.txt"});
}

// A small file system, unmounted when dropped.
class SmallDisk {
 public:
  SmallDisk(const fs::path& at, const std::string& size) : at_(at) {
    fs::create_directories(at_);
    mounted_ = ::mount("tmpfs", at_.c_str(), "tmpfs", 0, ("size=" + size).c_str()) == 0;
  }
  ~SmallDisk() {
    if (mounted_) {
      (void)::umount(at_.c_str());
    }
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;
  [[nodiscard]] bool mounted() const { return mounted_; }

 private:
  fs::path at_;
  bool mounted_;
};

TEST_F(BadRun, AFullDiskIsRefusedBeforeTrainingStarts) {
  // A checkpoint of this model takes about 80 KiB. The name keeps its content out of comparisons.
  for (const char* size : {"4k", "16k", "64k"}) {
    const SmallDisk disk(workspace() / "cache-disk", size);
    if (!disk.mounted()) {
      GTEST_SKIP() << "no small file system can be mounted here: " << std::strerror(errno);
    }
    expect_refused(workspace(), {"train", "tiny.json", "--run-dir", "cache-disk/run"},
                   {"cache-disk/run"});
  }
}

TEST_F(BadRun, ADiskThatFillsUpLaterShowsInTheStatusAndKeepsTheFirstCheckpoint) {
  const SmallDisk disk(workspace() / "cache-disk", "800k");
  if (!disk.mounted()) {
    GTEST_SKIP() << "no small file system can be mounted here: " << std::strerror(errno);
  }
  Program program({"train", "tiny.json", "--run-dir", "cache-disk/run", "--set", "train.steps=800",
                   "--set", "checkpoint.every=400", "--set", "validation.every=0", "--set",
                   "log.every=0", "--set", "log.grad_stats_every=0"},
                  {workspace().path(), ""});
  while (program.running() && !fs::exists(workspace() / "cache-disk/run/checkpoints/latest")) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  workspace().write("cache-disk/filler",
                    std::string(fs::space(workspace() / "cache-disk").free, 'x'));
  const Outcome outcome = program.wait();
  EXPECT_EQ(outcome.status, 4);
  EXPECT_THAT(outcome.err, testing::HasSubstr("could not be saved"));
  const Outcome scored = workspace().run({"eval", "cache-disk/run"});
  EXPECT_EQ(scored.status, 0) << scored.err << outcome.err;
}

TEST_F(BadRun, AnAnswerThatCannotBeWrittenIsNamed) {
  expect_refused(workspace(),
                 {"bench", "tiny.json", "--set", "model.vocab_size=50", "--repeat", "1", "--csv",
                  "/dev/full", "--json"},
                 {"/dev/full"});
  expect_refused(workspace(), {"tokenizer", "train", "tiny.json", "--out", "/dev/full"},
                 {"/dev/full"});
}

TEST_F(BadRun, AStdoutThatCannotBeWrittenIsNoSuccess) {
  for (const Arguments& arguments :
       {Arguments{"--help"}, Arguments{"eval", "run"}, Arguments{"inspect", "run"},
        Arguments{"generate", "run", "--prompt", "the"}, Arguments{"config", "show"}}) {
    const Outcome outcome = run_program(arguments, {workspace().path(), "", "/dev/full"});
    EXPECT_EQ(outcome.status, 2) << arguments.front();
    EXPECT_THAT(outcome.err, testing::EndsWith("transnormer: standard output: cannot be written: "
                                               "No space left on device\n"));
  }
}

TEST_F(BadRun, AWorkThatFailsLeavesTheOldAnswer) {
  workspace().write("old.txt", "old 1\n");
  expect_refused(
      workspace(),
      {"tokenizer", "train", "tiny.json", "--out", "old.txt", "--set", "data.train=none.txt"},
      {"none.txt"});
}

}  // namespace
}  // namespace transnormer
