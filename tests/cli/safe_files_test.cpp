// What becomes of people's files: those beside a run, those of a run, on file systems of all kinds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "cli/workspace.h"

namespace transnormer {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class SafeFiles : public testing::Test {
 protected:
  static Arguments train(const std::string& run, const Arguments& sets = {}) {
    Arguments arguments{"train", "tiny.json", "--run-dir", run};
    for (const std::string& set : sets) {
      arguments.insert(arguments.end(), {"--set", set});
    }
    return arguments;
  }
  // Goes on for long, and saves often.
  static Arguments long_training(const std::string& run, const Arguments& sets = {}) {
    Arguments all{"train.steps=1000000", "validation.every=0", "checkpoint.every=5", "log.every=1",
                  "log.grad_stats_every=0"};
    all.insert(all.end(), sets.begin(), sets.end());
    return train(run, all);
  }

  [[nodiscard]] ProgramOptions here() const { return {workspace_.path(), ""}; }

  // False where the program ended, or did not get there in a minute.
  static bool wait_until(Program& program, const std::function<bool()>& reached) {
    for (int i = 0; i < 6000 && program.running(); ++i) {
      if (reached()) {
        return true;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return program.running() && reached();
  }

  [[nodiscard]] bool has_checkpoint(const std::string& run) const {
    return fs::exists(workspace_ / run / "checkpoints/latest/manifest.json");
  }

  // With calls of the system that fail: "symlink:1".
  [[nodiscard]] Outcome run_with_faults(const std::string& faults,
                                        const Arguments& arguments) const {
    ::setenv("LD_PRELOAD", TRANSNORMER_FAULTY_CALLS, 1);
    ::setenv("FAULTY_CALLS", faults.c_str(), 1);
    Outcome outcome = workspace_.run(arguments);
    ::unsetenv("LD_PRELOAD");
    ::unsetenv("FAULTY_CALLS");
    return outcome;
  }

  Workspace workspace_;
};

TEST_F(SafeFiles, ARefusedTrainingLeavesEveryPlaceAsItWas) {
  workspace_.write("d/f", "mine");
  workspace_.write("d/sub/g", "mine too");
  const Arguments missing_text{"data.train=none.txt"};
  for (const char* place :
       {"d", "absent/../d", "d/sub/..", "absent/..", ".", "new", "new/deep/run", "d/new", "./d/"}) {
    SCOPED_TRACE(place);
    expect_refused(workspace_, train(place, missing_text), {"none.txt"});
    EXPECT_FALSE(fs::exists(workspace_ / "new"));
    EXPECT_FALSE(fs::exists(workspace_ / "absent"));
    EXPECT_FALSE(fs::exists(workspace_ / "d/new"));
    EXPECT_FALSE(fs::exists(workspace_ / "d/.lock"));
  }
  expect_refused(workspace_, train("d", {"model.dim=4294967296"}), {"model.dim"});
}

TEST_F(SafeFiles, WhatOthersPutIntoANewRunDirectoryStays) {
  std::string text;  // long enough to be prepared for a moment
  for (int line = 0; line < 600000; ++line) {
    text += "the river ran over stones and sang to hill at dawn\n";
  }
  workspace_.write("long.txt", text);
  Program preparing(train("new", {"data.train=long.txt", "train.global_batch_size=2000000000",
                                  "train.micro_batch_size=1"}),
                    here());
  ASSERT_TRUE(wait_until(preparing, [&] { return fs::exists(workspace_ / "new/.lock"); }));
  workspace_.write("new/notes.txt", "mine");
  EXPECT_EQ(preparing.wait().status, 2);
  EXPECT_EQ(workspace_.read("new/notes.txt"), "mine");
  EXPECT_FALSE(fs::exists(workspace_ / "new/.lock"));
}

TEST_F(SafeFiles, FilesThatNoRunMadeAreNotOverwritten) {
  workspace_.write("project/config.json", workspace_.read("tiny.json"));
  expect_refused(workspace_, train("project"), {"project/config.json: is no run's file"});
  for (const char* name : {"metrics.jsonl", "train.log"}) {
    workspace_.write(std::string("other-") + name + "/" + name, "not ours\n{\"step\": 3}\n");
    expect_refused(workspace_, train(std::string("other-") + name),
                   {std::string(name) + ": is no run's file"});
  }
  fs::create_directory(workspace_ / "pipe");
  ASSERT_EQ(::mkfifo((workspace_ / "pipe/config.json").c_str(), 0600), 0);
  expect_refused(workspace_, train("pipe"), {"pipe/config.json: cannot be read"});
  fs::create_directory(workspace_ / "loop");
  fs::create_symlink("config.json", workspace_ / "loop/config.json");
  expect_refused(workspace_, train("loop"), {"loop/config.json: cannot be read"});
  workspace_.write("mine/notes.txt", "mine");
  EXPECT_EQ(workspace_.run(train("mine")).status, 0);
  EXPECT_EQ(workspace_.read("mine/notes.txt"), "mine");
}

TEST_F(SafeFiles, FilesUnderTheNamesOfTokenizersInTheCacheAreNotOverwritten) {
  ASSERT_EQ(workspace_.run({"prepare", "tiny.json"}).status, 0);
  for (const auto& entry : fs::directory_iterator(workspace_ / "cache")) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("tokenizer-")) {
      continue;
    }
    const std::string places = "data.cache_dir=cache-other";
    workspace_.write("cache-other/" + name, "mine");
    expect_refused(workspace_, {"prepare", "tiny.json", "--set", places},
                   {name + ": stands where"});
    fs::remove(workspace_ / "cache-other" / name);
    workspace_.write("diary.txt", "mine");
    fs::create_symlink("../diary.txt", workspace_ / "cache-other" / name);
    expect_refused(workspace_, {"prepare", "tiny.json", "--set", places}, {name + ": is a link"});
    EXPECT_EQ(workspace_.read("diary.txt"), "mine");
    fs::remove(workspace_ / "cache-other" / name);
  }
  EXPECT_EQ(workspace_.run({"prepare", "tiny.json", "--set", "data.cache_dir=cache-other"}).status,
            0);
}

TEST_F(SafeFiles, ARunWhoseDirectoryIsRemovedTrainsOnAndEndsWithFour) {
  Program program(train("run", {"train.steps=3000", "validation.every=0", "checkpoint.every=5",
                                "log.every=1", "log.grad_stats_every=0"}),
                  here());
  ASSERT_TRUE(wait_until(program, [&] { return has_checkpoint("run"); }));
  fs::rename(workspace_ / "run", workspace_ / "gone");
  fs::remove_all(workspace_ / "gone");
  const Outcome outcome = program.wait();
  EXPECT_EQ(outcome.status, 4) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("run: is no longer the directory of this run"));
  EXPECT_FALSE(fs::exists(workspace_ / "run"));
}

TEST_F(SafeFiles, ARunWhoseDirectoryIsMovedNeverWritesIntoThatOfASecondOne) {
  Program first(long_training("run"), here());
  ASSERT_TRUE(wait_until(first, [&] { return has_checkpoint("run"); }));
  fs::rename(workspace_ / "run", workspace_ / "moved");
  const Outcome second = workspace_.run(train("run", {"train.steps=40", "log.every=1"}));
  ASSERT_EQ(second.status, 0) << second.err;
  const auto content = [&] {
    auto all = workspace_.content();
    std::erase_if(all, [](const auto& entry) { return !entry.first.starts_with("run/"); });
    return all;
  };
  const auto before = content();
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  ASSERT_TRUE(first.running());
  EXPECT_TRUE(content() == before);
  first.send(SIGINT);
  EXPECT_EQ(first.wait().status, 4);
  EXPECT_TRUE(content() == before);
}

TEST_F(SafeFiles, ARunWhoseDirectoryComesBackIsSavedAgain) {
  Program program(long_training("run"), here());
  ASSERT_TRUE(wait_until(program, [&] { return has_checkpoint("run"); }));
  fs::rename(workspace_ / "run", workspace_ / "moved");
  const std::string name = fs::read_symlink(workspace_ / "moved/checkpoints/latest");
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_EQ(fs::read_symlink(workspace_ / "moved/checkpoints/latest"), name);
  fs::rename(workspace_ / "moved", workspace_ / "run");
  EXPECT_TRUE(wait_until(program, [&] {
    std::error_code none;
    const fs::path now = fs::read_symlink(workspace_ / "run/checkpoints/latest", none);
    return !none && now != name;
  }));
  program.send(SIGTERM);
  EXPECT_EQ(program.wait().status, 143);
}

TEST_F(SafeFiles, EvalBesideARunThatRemovesItsCheckpointsFindsSoundOnes) {
  Program program(long_training("run", {"checkpoint.every=1"}), here());
  ASSERT_TRUE(wait_until(program, [&] { return has_checkpoint("run"); }));
  for (const char* checkpoint : {"run", "run/checkpoints/latest"}) {
    for (int i = 0; i < 5; ++i) {
      const Outcome outcome = workspace_.run({"eval", checkpoint});
      EXPECT_EQ(outcome.status, 0) << outcome.err;
    }
  }
  ASSERT_TRUE(program.running());
}

TEST_F(SafeFiles, AForkOfARunThatTrainsHasTheWeightsOfTheStepThatItTells) {
  Program program(long_training("other", {"checkpoint.every=1", "checkpoint.keep_every=1"}),
                  here());
  ASSERT_TRUE(wait_until(program, [&] { return has_checkpoint("other"); }));
  for (int i = 0; i < 5; ++i) {
    const std::string run = "fork-" + std::to_string(i);
    Arguments arguments =
        train(run, {"train.steps=1000000", "validation.every=0", "checkpoint.every=0",
                    "log.every=0", "log.grad_stats_every=0", "optimizer.lr=0",
                    "schedule.warmup_init_lr=0", "optimizer.weight_decay=0"});
    arguments.insert(arguments.end(), {"--resume", "other/checkpoints/latest"});
    Program fork(arguments, here());
    ASSERT_TRUE(wait_until(fork, [&] { return fs::exists(workspace_ / run / "metrics.jsonl"); }));
    fork.send(SIGTERM);
    const Outcome outcome = fork.wait();
    ASSERT_EQ(outcome.status, 143) << outcome.err;
    // "resumed from other/checkpoints/step-00000123 (step 123, ..": weights at a rate of 0 stay.
    const std::string key = "resumed from ";
    const std::size_t begin = outcome.err.find(key) + key.size();
    const std::string source = outcome.err.substr(begin, outcome.err.find(' ', begin) - begin);
    EXPECT_THAT(source, HasSubstr("checkpoints/step-"));
    EXPECT_TRUE(workspace_.read(source + "/model.safetensors") ==
                workspace_.read(run + "/checkpoints/latest/model.safetensors"))
        << source;
  }
}

TEST_F(SafeFiles, ACopyWithDirectoriesForLinksEvaluatesAndTrainsOn) {
  ASSERT_EQ(workspace_.run(train("run", {"train.steps=9", "checkpoint.keep_last=3"})).status, 0);
  const fs::path best = fs::read_symlink(workspace_ / "run/checkpoints/best");
  fs::copy(workspace_ / "run", workspace_ / "copy", fs::copy_options::recursive);  // follows links
  ASSERT_FALSE(fs::is_symlink(workspace_ / "copy/checkpoints/latest"));
  const Outcome of_run = workspace_.run({"eval", "run", "--json"});
  const Outcome of_copy = workspace_.run({"eval", "copy", "--json"});
  ASSERT_EQ(of_copy.status, 0) << of_copy.err;
  EXPECT_EQ(of_copy.out, of_run.out);
  const Outcome inspected = workspace_.run({"inspect", "copy", "--json"});
  EXPECT_EQ(json::parse(inspected.out)["path"], "copy/checkpoints/" + best.string());
  const auto before = workspace_.read("copy/checkpoints/latest/state.json");
  const Outcome longer = workspace_.run(train("copy", {"train.steps=12"}));
  EXPECT_EQ(longer.status, 0) << longer.err;
  EXPECT_THAT(longer.err, HasSubstr("(step 9)"));
  EXPECT_EQ(workspace_.read("copy/checkpoints/latest/state.json"), before);
  EXPECT_TRUE(fs::exists(workspace_ / "copy/checkpoints/step-00000012/manifest.json"));
}

TEST_F(SafeFiles, TheConfigInARunMeansThatRunWhereverItWasCopiedTo) {
  ASSERT_EQ(workspace_.run(train("run")).status, 0);
  fs::copy(workspace_ / "run", workspace_ / "copy",
           fs::copy_options::recursive | fs::copy_options::copy_symlinks);
  const Outcome outcome = workspace_.run({"train", "copy/config.json", "--set", "train.steps=9"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_TRUE(fs::exists(workspace_ / "copy/checkpoints/step-00000009/manifest.json"));
  EXPECT_FALSE(fs::exists(workspace_ / "run/checkpoints/step-00000009"));
  EXPECT_FALSE(fs::exists(workspace_ / "runs/run"));
}

TEST_F(SafeFiles, WithoutSymbolicLinksARunIsSavedPrunedAndResumed) {
  const std::string faults = "symlink:" + std::to_string(EPERM);
  const Outcome outcome = run_with_faults(
      faults, train("run", {"train.steps=9", "checkpoint.every=2", "validation.every=0"}));
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("latest: cannot be linked"), Not(HasSubstr("error"))));
  EXPECT_EQ(outcome.err.find("cannot be linked"), outcome.err.rfind("cannot be linked"));
  EXPECT_TRUE(fs::exists(workspace_ / "run/checkpoints/step-00000009/manifest.json"));
  EXPECT_FALSE(fs::exists(workspace_ / "run/checkpoints/step-00000002"));
  const Outcome resumed = run_with_faults(faults, train("run", {"train.steps=12"}));
  EXPECT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_THAT(resumed.err, HasSubstr("(step 9)"));
  EXPECT_EQ(run_with_faults(faults, {"eval", "run"}).status, 0);
}

TEST_F(SafeFiles, WithoutLocksOrFlushingARunWarnsAndGoesOn) {
  for (const int error : {ENOSYS, ENOLCK, EINVAL, EOPNOTSUPP}) {
    const std::string run = "run-" + std::to_string(error);
    const std::string number = std::to_string(error);
    const std::string fsync = error == ENOLCK ? "" : " fsync:" + number;
    const Outcome outcome = run_with_faults("flock:" + number + fsync, train(run));
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("this file system has no locks"));
    if (!fsync.empty()) {
      EXPECT_THAT(outcome.err, HasSubstr("this file system cannot flush"));
    }
    EXPECT_EQ(workspace_.run({"eval", run}).status, 0);
  }
}

TEST_F(SafeFiles, WithoutExchangingNamesACheckpointIsReplacedAllTheSame) {
  ASSERT_EQ(workspace_.run(train("run", {"validation.every=0"})).status, 0);
  // Step 6 is validated at last, is the best so far, and so is saved again.
  const Outcome outcome = run_with_faults("renameat2:" + std::to_string(EINVAL),
                                          train("run", {"train.steps=7", "validation.every=6"}));
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(json::parse(workspace_.read("run/checkpoints/step-00000006/state.json"))["best_step"],
            6);
  EXPECT_EQ(workspace_.run({"eval", "run"}).status, 0);
  const fs::directory_iterator entries(workspace_ / "run/checkpoints");
  EXPECT_EQ(std::distance(fs::begin(entries), fs::end(entries)), 4);  // two, and two links
}

TEST_F(SafeFiles, FilesAreForAllWhomTheUmaskLets) {
  const mode_t before = ::umask(002);
  const Outcome outcome = workspace_.run(train("run"));
  ::umask(before);
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  int files = 0;
  for (const fs::path& place : {workspace_ / "run", workspace_ / "cache"}) {
    for (const auto& entry : fs::recursive_directory_iterator(place)) {
      if (!entry.is_symlink() && entry.is_regular_file()) {
        EXPECT_EQ(entry.status().permissions(), fs::perms(0664)) << entry.path();
        ++files;
      }
    }
  }
  EXPECT_GT(files, 15);
}

TEST_F(SafeFiles, MilestonesOfAnEarlierStartAreKeptByALaterOneWithout) {
  ASSERT_EQ(workspace_.run(train("run", {"checkpoint.keep_every=3"})).status, 0);
  ASSERT_EQ(workspace_.run(train("run", {"train.steps=20", "checkpoint.every=2"})).status, 0);
  for (const char* step : {"step-00000003", "step-00000006"}) {
    EXPECT_TRUE(fs::exists(workspace_ / "run/checkpoints" / step / "manifest.json")) << step;
  }
  EXPECT_FALSE(fs::exists(workspace_ / "run/checkpoints/step-00000008"));
}

}  // namespace
}  // namespace transnormer
