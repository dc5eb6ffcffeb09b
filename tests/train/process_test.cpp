// Training as a process: killed, stopped by signals, resumed, diverged.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

#include "cli/program.h"
#include "cli/workspace.h"

namespace transnormer {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

// Waits for what a running program brings about; false where it ended before.
bool wait_until(Program& program, const std::function<bool()>& happened) {
  while (!happened()) {
    if (!program.running()) {
      return happened();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

std::string read_if_there(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class TrainProcess : public testing::Test {
 protected:
  static Arguments train(const std::string& run, const Arguments& sets) {
    Arguments arguments{"train", "tiny.json", "--run-dir", run};
    for (const std::string& set : sets) {
      arguments.insert(arguments.end(), {"--set", set});
    }
    return arguments;
  }

  [[nodiscard]] ProgramOptions here() const { return {workspace_.path(), ""}; }

  [[nodiscard]] std::string metrics(const std::string& run) const {
    return read_if_there(workspace_ / run / "metrics.jsonl");
  }

  [[nodiscard]] std::vector<std::string> lines_of_kind(const std::string& run,
                                                       const std::string& kind) const {
    std::vector<std::string> lines;
    for (const std::string& line : lines_of(metrics(run))) {
      if (line.find("\"kind\":\"" + kind + '"') != std::string::npos) {
        lines.push_back(line);
      }
    }
    return lines;
  }

  [[nodiscard]] std::string latest(const std::string& run) const {
    return fs::read_symlink(workspace_ / run / "checkpoints" / "latest").string();
  }

  void expect_same_end(const std::string& first, const std::string& second) const {
    ASSERT_EQ(latest(first), latest(second));
    for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
      const std::string name = "/checkpoints/latest/" + std::string(file);
      EXPECT_TRUE(workspace_.read(first + name) == workspace_.read(second + name)) << file;
    }
  }

  // Killed after the checkpoint of step 40.
  void kill_and_resume(const Arguments& sets, std::size_t steps) const {
    ASSERT_EQ(workspace_.run(train("whole", sets)).status, 0);
    {
      Program program(train("killed", sets), here());
      ASSERT_TRUE(wait_until(program, [&] {
        return fs::exists(workspace_ / "killed/checkpoints/step-00000040/manifest.json");
      }));
      program.send(SIGKILL);
      ASSERT_EQ(program.wait().status, -1) << "it ended before it was killed";
    }
    const Outcome outcome = workspace_.run(train("killed", sets));
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("resumed"));
    expect_same_end("whole", "killed");
    EXPECT_EQ(lines_of_kind("killed", "train").size(), steps);
    EXPECT_EQ(lines_of_kind("killed", "valid").size(), lines_of_kind("whole", "valid").size());
  }

  // A sound run of 20 steps in half precision, and what makes it diverge from there.
  [[nodiscard]] Arguments sound_run() const {
    const Arguments sets{"train.precision=fp16", "checkpoint.every=5", "validation.every=0"};
    Arguments sound = sets;
    sound.emplace_back("train.steps=20");
    EXPECT_EQ(workspace_.run(train("run", sound)).status, 0);
    Arguments broken = sets;
    broken.insert(broken.end(), {"train.steps=1000000", "optimizer.lr=100", "log.every=0",
                                 "log.grad_stats_every=0"});
    return broken;
  }

  Workspace workspace_;
};

TEST_F(TrainProcess, KilledAndResumedItEndsWithTheSameBitsAndMetrics) {
  kill_and_resume({"train.steps=200", "checkpoint.every=10", "validation.every=15",
                   "log.tensorboard=false", "train.micro_batch_size=3"},
                  200);
}

// Tensors large enough for two.
TEST_F(TrainProcess, KilledAndResumedWithTwoThreadsItEndsWithTheSameBitsAndMetrics) {
  kill_and_resume(
      {"train.steps=80", "checkpoint.every=10", "validation.every=15", "log.tensorboard=false",
       "train.threads=2", "model.dim=64", "train.global_batch_size=16"},
      80);
}

// The loss of the step that a line tells of.
double loss_of(const std::string& line) {
  const std::string key = "\"loss\":";
  return std::stod(line.substr(line.find(key) + key.size()));
}

TEST_F(TrainProcess, KernelsAndPlainOperatorsLearnAlike) {
  const Arguments long_run{"train.steps=200", "log.every=1", "validation.every=0",
                           "log.grad_stats_every=0", "checkpoint.every=0"};
  ASSERT_EQ(run_program(train("fast", long_run), here()).status, 0);
  ::setenv("TRANSNORMER_OPERATORS", "plain", 1);
  const auto plain = run_program(train("plain", long_run), here());
  ::unsetenv("TRANSNORMER_OPERATORS");
  ASSERT_EQ(plain.status, 0) << plain.err;
  const std::vector<std::string> fast_lines = lines_of_kind("fast", "train");
  const std::vector<std::string> plain_lines = lines_of_kind("plain", "train");
  ASSERT_EQ(fast_lines.size(), 200U);
  ASSERT_EQ(plain_lines.size(), 200U);
  EXPECT_NEAR(loss_of(fast_lines.front()), loss_of(plain_lines.front()), 1e-5);
  EXPECT_NEAR(loss_of(fast_lines.back()), loss_of(plain_lines.back()), 1e-2);
  EXPECT_NE(loss_of(fast_lines.back()), loss_of(plain_lines.back()));  // two ways indeed
}

TEST_F(TrainProcess, RefusesOperatorsThatThereAreNot) {
  ::setenv("TRANSNORMER_OPERATORS", "plane", 1);
  const auto refused = run_program(train("run", {}), here());
  ::unsetenv("TRANSNORMER_OPERATORS");
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.err, HasSubstr("TRANSNORMER_OPERATORS: expected \"plain\", \"launched\""));
}

TEST_F(TrainProcess, SavesOnSigusr1AndGoesOnAndStopsOnSigintAfterSaving) {
  const Arguments sets{"checkpoint.every=0", "validation.every=0", "log.tensorboard=false"};
  const auto until = [&sets](const std::string& steps) {
    Arguments all = sets;
    all.push_back("train.steps=" + steps);
    return all;
  };
  std::string stopped_at;
  {
    Program program(train("stopped", until("1000000")), here());
    ASSERT_TRUE(wait_until(program, [&] { return lines_of_kind("stopped", "train").size() >= 3; }));
    program.send(SIGUSR1);
    ASSERT_TRUE(wait_until(
        program, [&] { return metrics("stopped").find("\"saved\"") != std::string::npos; }));
    ASSERT_TRUE(program.running());
    const std::string saved = latest("stopped");
    const std::size_t lines = lines_of_kind("stopped", "train").size();
    ASSERT_TRUE(
        wait_until(program, [&] { return lines_of_kind("stopped", "train").size() > lines + 2; }));
    program.send(SIGINT);
    EXPECT_EQ(program.wait().status, 130);
    EXPECT_NE(latest("stopped"), saved);
    stopped_at = latest("stopped").substr(5);
  }
  const std::string end = std::to_string(std::stoi(stopped_at) + 4);
  const Outcome resumed = workspace_.run(train("stopped", until(end)));
  ASSERT_EQ(resumed.status, 0) << resumed.err;
  ASSERT_EQ(workspace_.run(train("whole", until(end))).status, 0);
  expect_same_end("whole", "stopped");
}

TEST_F(TrainProcess, StoppedDuringValidationItSavesAndValidatesAgainOnResume) {
  std::string text;
  for (int line = 0; line < 4000; ++line) {
    text += "the river ran over stones and sang\n";
  }
  workspace_.write("valid.txt", text);
  const Arguments sets{"train.steps=4", "validation.every=3", "validation.batch_size=1",
                       "checkpoint.every=0", "log.tensorboard=false"};
  ASSERT_EQ(workspace_.run(train("whole", sets)).status, 0);
  {
    Program program(train("stopped", sets), here());
    ASSERT_TRUE(wait_until(program, [&] { return lines_of_kind("stopped", "train").size() == 3; }));
    program.send(SIGTERM);
    EXPECT_EQ(program.wait().status, 143);
  }
  EXPECT_EQ(latest("stopped"), "step-00000003");
  ASSERT_THAT(lines_of_kind("stopped", "valid"), testing::IsEmpty());
  const Outcome outcome = workspace_.run(train("stopped", sets));
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  expect_same_end("whole", "stopped");
  const std::vector<std::string> valid = lines_of_kind("stopped", "valid");
  ASSERT_EQ(valid.size(), 2U);
  EXPECT_THAT(valid[0], HasSubstr("\"step\":3"));
  EXPECT_EQ(fs::read_symlink(workspace_ / "stopped/checkpoints/best"),
            fs::read_symlink(workspace_ / "whole/checkpoints/best"));
}

TEST_F(TrainProcess, ARunThatDivergesExitsWithThree) {
  const Outcome outcome = workspace_.run(
      train("run", {"optimizer.lr=1000", "optimizer.weight_decay=1000", "schedule.name=constant",
                    "schedule.warmup_steps=0", "train.steps=100", "checkpoint.every=2"}));
  EXPECT_EQ(outcome.status, 3);
  EXPECT_THAT(lines_of(outcome.err).back(), HasSubstr("training diverged at update"));
  EXPECT_TRUE(fs::exists(workspace_ / "run/checkpoints/latest/manifest.json"));
}

TEST_F(TrainProcess, ARunThatDivergesKeepsItsSoundCheckpointsAndGoesOnFromThem) {
  const Outcome outcome = workspace_.run(train("run", sound_run()));
  EXPECT_EQ(outcome.status, 3);
  EXPECT_THAT(
      lines_of(outcome.err).back(),
      testing::AllOf(HasSubstr("updates in a row"),
                     HasSubstr("the last sound checkpoint is run/checkpoints/step-00000020")));
  EXPECT_EQ(latest("run"), "step-00000020");
  EXPECT_TRUE(fs::exists(workspace_ / "run/checkpoints/step-00000015/manifest.json"));
  const Outcome resumed = workspace_.run(train("run", {"train.precision=fp16", "train.steps=25"}));
  EXPECT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_THAT(resumed.err, HasSubstr("(step 20)"));
}

TEST_F(TrainProcess, StoppedAmidSkippedUpdatesItSavesNothingAndSaysFromWhereItGoesOn) {
  Arguments sets = sound_run();
  sets.emplace_back("train.nonfinite_limit=1000000000");
  Program program(train("run", sets), here());
  ASSERT_TRUE(wait_until(
      program, [&] { return metrics("run").find("save_postponed") != std::string::npos; }));
  program.send(SIGTERM);
  const Outcome outcome = program.wait();
  EXPECT_EQ(outcome.status, 143);
  EXPECT_THAT(lines_of(outcome.err).back(),
              HasSubstr("updates were skipped; the same command goes on from step 20"));
  EXPECT_EQ(latest("run"), "step-00000020");
}

TEST_F(TrainProcess, ALossThatStaysFarAboveGuessingExitsWithThree) {
  const Outcome outcome =
      workspace_.run(train("run", {"optimizer.lr=100", "schedule.name=constant", "train.steps=1000",
                                   "validation.every=0", "checkpoint.every=0"}));
  EXPECT_EQ(outcome.status, 3);
  EXPECT_THAT(lines_of(outcome.err).back(), HasSubstr("the mean loss of 50 updates is"));
}

// A lock on the cache, held here, makes the preparation wait.
TEST_F(TrainProcess, ASaveOrAStopThatIsAskedForDuringPreparationIsNoDeath) {
  fs::create_directories(workspace_ / "cache");
  const int lock = ::open((workspace_ / "cache/lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_EQ(::flock(lock, LOCK_EX), 0);
  const auto begin = [this](Program& program, const std::string& run) {
    return wait_until(program, [&] { return fs::exists(workspace_ / run / ".lock"); });
  };
  Program stopped(train("stopped", {}), here());
  ASSERT_TRUE(begin(stopped, "stopped"));
  stopped.send(SIGTERM);
  const Outcome outcome = stopped.wait();
  EXPECT_EQ(outcome.status, 143);
  EXPECT_THAT(outcome.err, testing::EndsWith("transnormer: stopped by SIGTERM\n"));
  EXPECT_FALSE(fs::exists(workspace_ / "stopped"));
  Program saved(train("saved", {"checkpoint.every=0", "validation.every=0"}), here());
  ASSERT_TRUE(begin(saved, "saved"));
  saved.send(SIGUSR1);
  ::close(lock);
  EXPECT_EQ(saved.wait().status, 0);
  EXPECT_TRUE(fs::exists(workspace_ / "saved/checkpoints/step-00000001"));
}

TEST_F(TrainProcess, AGapInAFileOfTheLogShowsInTheStatusAndInTheMetrics) {
  Program program(train("run", {"train.steps=1000000", "checkpoint.every=0", "validation.every=0"}),
                  here());
  const auto lines = [this] { return lines_of_kind("run", "train").size(); };
  ASSERT_TRUE(wait_until(program, [&] { return lines() >= 3; }));
  const fs::path metrics_file = workspace_ / "run/metrics.jsonl";
  fs::rename(metrics_file, workspace_ / "aside");
  while (!fs::is_directory(metrics_file)) {  // the run may make the file anew in between
    fs::remove(metrics_file);
    std::error_code taken;
    fs::create_directory(metrics_file, taken);
  }
  ASSERT_TRUE(wait_until(program, [&] {
    return read_if_there(workspace_ / "run/train.log").find("cannot be written") !=
           std::string::npos;
  }));
  fs::remove(metrics_file);
  ASSERT_TRUE(
      wait_until(program, [&] { return metrics("run").find("log_gap") != std::string::npos; }));
  program.send(SIGTERM);
  const Outcome outcome = program.wait();
  EXPECT_EQ(outcome.status, 143);
  EXPECT_THAT(outcome.err, HasSubstr("metrics.jsonl: cannot be written: "));
}

TEST_F(TrainProcess, TheSavedConfigMeansTheDirectoryThatHoldsIt) {
  fs::create_directories(workspace_ / "runs/other");
  ASSERT_EQ(workspace_.run(train("runs/other/../mine/", {})).status, 0);
  EXPECT_THAT(workspace_.read("runs/mine/config.json"), HasSubstr("\"run_name\": \"mine\""));
  const Outcome again = workspace_.run({"train", "runs/mine/config.json"});
  EXPECT_EQ(again.status, 0);
  EXPECT_THAT(again.err, HasSubstr("runs/mine: this run has ended"));
}

TEST_F(TrainProcess, ARunThatPatienceEndedNamesTheKeyThatLetsItGoOn) {
  const Arguments sets{"validation.every=1", "validation.patience=1", "optimizer.lr=0",
                       "schedule.warmup_init_lr=0"};
  ASSERT_EQ(workspace_.run(train("run", sets)).status, 0);
  EXPECT_THAT(workspace_.run(train("run", sets)).err,
              testing::EndsWith("; raise validation.patience to go on: train run --set "
                                "validation.patience=..\n"));
}

TEST_F(TrainProcess, AFinishedRunSaysSoAndChangesNothing) {
  ASSERT_EQ(workspace_.run(train("run", {})).status, 0);
  const std::string before = metrics("run");
  const Outcome outcome = workspace_.run(train("run", {}));
  EXPECT_EQ(outcome.status, 0);
  EXPECT_THAT(outcome.err, HasSubstr("has ended: reached train.steps, 6"));
  EXPECT_EQ(metrics("run"), before);
  const Outcome quiet = workspace_.run(train("run", {"log.level=error"}));
  EXPECT_EQ(quiet.status, 0);
  EXPECT_THAT(quiet.err, HasSubstr("has ended"));
}

TEST_F(TrainProcess, SaysAtItsStartWhatItIsGoingToDo) {
  const Outcome outcome = workspace_.run(train("run", {}));
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "");
  for (const char* part :
       {"model: custom, 2 layers", "parameters", "data: ", "6 updates of 4 samples", "cpu", "fp32",
        "1 thread", "run directory: run"}) {
    EXPECT_THAT(outcome.err, HasSubstr(part));
  }
  EXPECT_THAT(workspace_.read("run/train.log"), HasSubstr("done: reached train.steps"));
}

TEST_F(TrainProcess, RefusesToGuessWhichOfSeveralProcessesItIs) {
  ::setenv("WORLD_SIZE", "2", 1);
  expect_refused(workspace_, train("run", {}), {"WORLD_SIZE is set, but RANK is not"});
  ::unsetenv("WORLD_SIZE");
}

TEST_F(TrainProcess, RefusesWhatCannotBeTrained) {
  expect_refused(workspace_, train("run", {"data.train=[]"}), {"data.train"});
  expect_refused(workspace_, train("run", {"train.steps=0"}), {"train.max_epochs"});
  EXPECT_FALSE(fs::exists(workspace_ / "run"));
}

TEST_F(TrainProcess, RefusesBatchesThatNoMemoryHolds) {
  const Arguments pass{"train.global_batch_size=4000000"};
  const Arguments update{"train.global_batch_size=2000000000", "train.micro_batch_size=1"};
  for (const auto& [sets, words] : {std::pair(pass, "train.micro_batch_size: 4,000,000"),
                                    std::pair(update, "train.global_batch_size: 2,000,000,000")}) {
    const Outcome outcome = workspace_.run(train("run", sets));
    EXPECT_EQ(outcome.status, 2);
    EXPECT_THAT(lines_of(outcome.err).back(), HasSubstr(words));
    EXPECT_THAT(lines_of(outcome.err).back(), HasSubstr("iB"));
  }
  EXPECT_FALSE(fs::exists(workspace_ / "run"));
}

}  // namespace
}  // namespace transnormer
