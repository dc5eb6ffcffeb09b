// Going on with a run by its directory, forks, new runs with the weights of others; the recipes of
// the README.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>

#include "cli/workspace.h"

namespace transnormer {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class TrainCommand : public testing::Test {
 protected:
  [[nodiscard]] Outcome train(Arguments arguments) const {
    arguments.insert(arguments.begin(), "train");
    return workspace_.run(arguments);
  }

  // Trains, and gives what was said.
  [[nodiscard]] std::string said(const Arguments& arguments) const {
    const Outcome outcome = train(arguments);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_EQ(outcome.out, "");
    return outcome.err;
  }

  void expect_same_end(const std::string& first, const std::string& second,
                       const std::string& step) const {
    for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
      const std::string name = "/checkpoints/step-" + step + "/" + file;
      EXPECT_TRUE(workspace_.read(first + name) == workspace_.read(second + name)) << file;
    }
  }

  Workspace workspace_;
};

TEST_F(TrainCommand, ARunDirectoryMeansThatRunWithWhatWasSetForIt) {
  const Arguments sets{"--set", "train.steps=12",       "--set", "optimizer.lr=0.01",
                       "--set", "log.tensorboard=false"};
  Arguments config{"tiny.json", "--run-dir", "runs/one"};
  config.insert(config.end(), sets.begin(), sets.end());
  Arguments hurried = config;
  hurried.insert(hurried.end(), {"--set", "train.max_hours=1e-9"});
  // Two runs that end at step 1. One goes on by its config, one by its directory.
  (void)said(hurried);
  hurried[2] = "runs/two";
  (void)said(hurried);
  (void)said(config);
  const std::string by_directory = said({"runs/two/", "--set", "train.max_hours=0"});
  EXPECT_THAT(by_directory, HasSubstr("train.max_hours: 1e-09 -> 0.0 (--set)"));
  EXPECT_THAT(by_directory, Not(HasSubstr("optimizer.lr")));  // nothing that was to be told
  EXPECT_THAT(by_directory, HasSubstr("(step 1)"));
  expect_same_end("runs/one", "runs/two", "00000012");
}

TEST_F(TrainCommand, KilledItGoesOnByItsDirectoryFromElsewhereToo) {
  const Arguments sets{"--set", "train.steps=60",    "--set", "checkpoint.every=10",
                       "--set", "validation.every=0"};
  Arguments start{"train", "tiny.json", "--run-dir", "runs/killed"};
  start.insert(start.end(), sets.begin(), sets.end());
  {
    Program program(start, {workspace_.path(), ""});
    while (program.running() &&
           !fs::exists(workspace_ / "runs/killed/checkpoints/step-00000020/manifest.json")) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    program.send(SIGKILL);
    ASSERT_EQ(program.wait().status, -1) << "it ended before it was killed";
  }
  fs::rename(workspace_ / "runs/killed", workspace_ / "moved");
  fs::create_directory(workspace_ / "sub");
  const Outcome outcome = run_program({"train", "../moved"}, {workspace_ / "sub", ""});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("resumed from ../moved/checkpoints/step-000000"));
  EXPECT_THAT(workspace_.read("moved/config.json"), HasSubstr("\"run_name\": \"moved\""));
  EXPECT_FALSE(fs::exists(workspace_ / "runs/killed"));
  start[3] = "runs/whole";
  ASSERT_EQ(workspace_.run(start).status, 0);
  expect_same_end("runs/whole", "moved", "00000060");
}

TEST_F(TrainCommand, ALaterSetWinsIsToldAndRemembered) {
  (void)said({"tiny.json", "--run-dir", "run", "--set", "optimizer.lr=0.002"});
  EXPECT_THAT(said({"run", "--set", "optimizer.lr=0.001", "--set", "train.steps=9"}),
              AllOf(HasSubstr("optimizer.lr: 0.002 -> 0.001 (--set)"),
                    HasSubstr("train.steps: 6 -> 9 (--set)")));
  EXPECT_THAT(workspace_.read("run/config.json"), HasSubstr("\"lr\": 0.001"));
  // A config does not remember, and says so.
  EXPECT_THAT(said({"tiny.json", "--run-dir", "run", "--set", "train.steps=12"}),
              HasSubstr("optimizer.lr: 0.001 -> 0.0005 (default)"));
}

TEST_F(TrainCommand, AFinishedRunNamesTheCommandThatLetsItGoOn) {
  (void)said({"tiny.json", "--run-dir", "run", "--set", "train.steps=8"});
  EXPECT_THAT(said({"run"}),
              testing::EndsWith("run: this run has ended: reached train.steps, 8; raise "
                                "train.steps to go on: train run --set train.steps=..\n"));
  EXPECT_THAT(said({"tiny.json", "--run-dir", "run"}),
              HasSubstr("train.steps: 8 -> 6 (tiny.json)"));  // what ends it now
}

TEST_F(TrainCommand, WithoutItsConfigARunGoesByThatOfItsNewestCheckpoint) {
  (void)said({"tiny.json", "--run-dir", "run", "--set", "optimizer.lr=0.002"});
  workspace_.write("run/config.json", "{\"run_name\": \"ru");
  EXPECT_THAT(
      said({"run", "--set", "train.steps=9"}),
      AllOf(HasSubstr("run/config.json: is damaged; going by the config of the newest whole "
                      "checkpoint, run/checkpoints/step-00000006/config.json"),
            Not(HasSubstr("optimizer.lr"))));
  EXPECT_EQ(workspace_.read("run/.damaged-config.json"), "{\"run_name\": \"ru");
  EXPECT_THAT(workspace_.read("run/config.json"), HasSubstr("\"lr\": 0.002"));
}

TEST_F(TrainCommand, AForkHasTheWholeStateAndTheRunStaysAsItIs) {
  (void)said({"tiny.json", "--run-dir", "run"});
  const auto before = workspace_.content();
  (void)said(
      {"run", "--resume", "run/checkpoints/latest", "--run-dir", "fork", "--set", "train.steps=9"});
  for (const auto& [name, bytes] : before) {
    EXPECT_EQ(workspace_.content().at(name), bytes) << name;
  }
  EXPECT_TRUE(fs::exists(workspace_ / "fork/checkpoints/step-00000006"));
  (void)said({"run", "--set", "train.steps=9"});
  expect_same_end("run", "fork", "00000009");
}

TEST_F(TrainCommand, WhatIsNoRunOrAmbiguousIsRefusedAndNothingChanges) {
  (void)said({"tiny.json", "--run-dir", "run"});
  fs::create_directory(workspace_ / "empty");
  const std::string checkpoint = "run/checkpoints/step-00000006";
  const auto refused = [this](Arguments arguments, const std::string& words) {
    arguments.insert(arguments.begin(), "train");
    expect_refused(workspace_, arguments, {words});
  };
  refused({"empty"}, "empty: a directory that holds no run");
  refused({"nowhere"}, "nowhere");
  refused({checkpoint}, checkpoint + ": a checkpoint; expected a config or a run directory");
  refused({"tiny.json", "--run-dir", checkpoint},
          checkpoint + ": is a checkpoint, and a run needs");
  refused({"run", "--run-dir", "other"},
          "--run-dir: run is a run and goes on where it lies; leave --run-dir out, or say what the "
          "new run begins with: --resume run/checkpoints/latest");
  refused({"run/config.json", "--run-dir", "other"},
          "--run-dir: run is a run and goes on where it lies");
  refused({"run", "--init-from", checkpoint}, "--init-from: run holds a run, which goes on from ");
  refused({"tiny.json", "--run-dir", "run", "--set", "train.init_from=run"},
          "--set train.init_from: run holds a run, which goes on from ");
  refused({"run", "--resume", "never"}, "holds a run, and --resume never starts anew");
  refused({"tiny.json", "--run-dir", "new", "--init-from", "run", "--resume", checkpoint},
          "--init-from: begins a new run");
  refused({"tiny.json", "--run-dir", "new", "--set", "train.init_from=run", "--resume", checkpoint},
          "--set train.init_from: begins a new run");
  refused({"tiny.json", "--run-dir", "new", "--init-from", "nowhere"},
          "there is no such checkpoint");
  refused({"tiny.json", "--run-dir", "new", "--init-from", "train.txt"}, "train.init_from: ");
  refused({"tiny.json", "--run-dir", "new", "--init-from", "run", "--set", "model.dim=32"},
          "no weights in common");
  refused({"tiny.json", "--run-dir", "new", "--init-from", ""}, "the name is empty");
  workspace_.write("words.txt", "the 4\nhill 2\n");
  refused(
      {"tiny.json", "--run-dir", "new", "--init-from", "run", "--set", "tokenizer.path=words.txt"},
      "words.txt is not the tokenizer of");
  refused({"run", "--set", "model.dim=32"}, "(with its weights: --init-from " + checkpoint + ")");
  refused({"run", "--set", "data.train=valid.txt"},
          "to train anew (with its weights: --init-from " + checkpoint + ")");
  refused({"run", "--resume", checkpoint, "--run-dir", "new", "--set", "data.train=valid.txt"},
          "or leave --resume out to train anew (with its weights: --init-from " + checkpoint + ")");
  EXPECT_FALSE(fs::exists(workspace_ / "new"));
  EXPECT_FALSE(fs::exists(workspace_ / "other"));
}

TEST_F(TrainCommand, NewWeightsComeFromTheBestCheckpointAndPreparingTakesItsTokenizer) {
  (void)said({"tiny.json", "--run-dir", "run"});
  workspace_.write("short.txt", "the river sang at dawn\nso it goes and goes\n");
  const Arguments sets{"--set", "data.train=short.txt", "--set", "data.valid=[]",
                       "--set", "data.test=[]",         "--set", "train.init_from=run"};
  Arguments prepare{"prepare", "tiny.json", "--json"};
  prepare.insert(prepare.end(), sets.begin(), sets.end());
  const Outcome prepared = workspace_.run(prepare);
  ASSERT_EQ(prepared.status, 0) << prepared.err;
  EXPECT_THAT(prepared.out, AllOf(HasSubstr("\"unknown\":4"), HasSubstr("\"vocab_size\":16")));
  const std::string best = fs::read_symlink(workspace_ / "run/checkpoints/best").string();
  EXPECT_THAT(said({"tiny.json", "--run-dir", "tuned", "--init-from", "run", "--set",
                    "data.train=short.txt"}),
              AllOf(HasSubstr("started with weights of"), HasSubstr("checkpoints/" + best),
                    HasSubstr("100.0% of the model's numbers"), HasSubstr("taken: ")));
}

// The commands under "### Recipes" in the README, literally: a shell line and what stands behind #.
std::vector<Arguments> recipes() {
  std::ifstream readme(TRANSNORMER_README);
  std::vector<Arguments> found;
  bool is_there = false;
  bool is_block = false;
  for (std::string line; std::getline(readme, line);) {
    if (line.starts_with("#") && !is_block) {
      is_there = line == "### Recipes";
    }
    if (line.starts_with("```")) {
      is_block = !is_block;
    } else if (is_there && is_block) {
      std::istringstream words(line.substr(0, line.find('#')));
      const Arguments command{std::istream_iterator<std::string>(words), {}};
      if (!command.empty()) {
        found.push_back(command);
      }
    }
  }
  return found;
}

// On the small text, and for a few steps more: the last --set wins.
TEST_F(TrainCommand, TheRecipesOfTheReadmeWork) {
  const std::vector<Arguments> commands = recipes();
  ASSERT_EQ(commands.size(), 4U);
  workspace_.write("other.txt", workspace_.read("valid.txt"));
  (void)said({"tiny.json", "--run-dir", "runs/mine"});
  int steps = 6;
  for (const Arguments& command : commands) {
    ASSERT_EQ(command.front(), "build/transnormer");
    Arguments arguments{command.begin() + 1, command.end()};
    steps += 2;
    arguments.insert(arguments.end(), {"--set", "train.steps=" + std::to_string(steps)});
    const Outcome outcome = workspace_.run(arguments);
    EXPECT_EQ(outcome.status, 0) << testing::PrintToString(arguments) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("done: reached train.steps, " + std::to_string(steps)));
  }
}

}  // namespace
}  // namespace transnormer
