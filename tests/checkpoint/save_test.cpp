// What is left when a save is killed or fails.
#include "checkpoint/save.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <functional>
#include <string>

#include "checkpoint/checkpoint.h"
#include "checkpoint/fixture.h"
#include "checkpoint/layout.h"
#include "checkpoint/run_directory.h"
#include "util/child.h"
#include "util/error.h"
#include "util/file.h"
#include "util/temporary_directory.h"

namespace transnormer {
namespace {

namespace fs = std::filesystem;
using test::first_difference;
using test::status_of_child;
using test::TinyTraining;
using ::testing::ElementsAre;

constexpr SaveStage kStages[] = {
    SaveStage::begun,         SaveStage::model_written,    SaveStage::optimizer_written,
    SaveStage::files_written, SaveStage::manifest_written, SaveStage::renamed};
constexpr int kCrashed = 9;

class Save : public ::testing::Test {
 protected:
  // Saves `training` in a process that dies at this stage, without any cleaning up.
  void crash_at(SaveStage stage, TinyTraining& training, std::int64_t step) const {
    const int status = status_of_child([&] {
      training.save(run_, step, [stage](SaveStage passed) {
        if (passed == stage) {
          ::_exit(kCrashed);
        }
      });
      return 0;
    });
    ASSERT_EQ(status, kCrashed);
  }

  void start_anew() const {
    fs::remove_all(run_);
    fs::create_directories(run_);
  }

  // The checkpoint that the run stands for loads, and has these weights.
  void expect_loads(const fs::path& path, TinyTraining& expected) const {
    const auto model = Checkpoint::open(path).load_model(at::kCPU);
    EXPECT_EQ(first_difference(named_tensors(*model), named_tensors(*expected.model)), "");
  }

  [[nodiscard]] fs::path checkpoints() const { return run_ / "checkpoints"; }
  [[nodiscard]] std::ptrdiff_t entries() const {
    return std::distance(fs::directory_iterator(checkpoints()), fs::directory_iterator());
  }

  test::TemporaryDirectory directory_;
  fs::path run_ = directory_ / "run";
  TinyTraining first_{1};
  TinyTraining second_{2};
};

TEST_F(Save, KilledAtAnyStageLeavesALoadableCheckpoint) {
  for (const SaveStage stage : kStages) {
    SCOPED_TRACE(static_cast<int>(stage));
    start_anew();
    first_.save(run_, 1);
    crash_at(stage, second_, 2);
    const bool named = stage >= SaveStage::renamed;
    expect_loads(run_, named ? second_ : first_);
    const RunDirectory directory(run_);  // what a resume does
    if (named) {
      EXPECT_THAT(directory.checkpoint_steps(), ElementsAre(1, 2));
      expect_loads(directory.checkpoint_path(2), second_);
    } else {
      EXPECT_THAT(directory.checkpoint_steps(), ElementsAre(1));
    }
    expect_loads(directory.checkpoint_path(1), first_);
  }
}

TEST_F(Save, KilledBeforeTheFirstCheckpointLeavesNone) {
  for (const SaveStage stage : {SaveStage::begun, SaveStage::manifest_written}) {
    start_anew();
    crash_at(stage, first_, 1);
    EXPECT_THROW((void)Checkpoint::open(run_), UserError);
    const RunDirectory directory(run_);
    EXPECT_FALSE(directory.holds_a_run());
    EXPECT_TRUE(fs::is_empty(run_ / "checkpoints"));
  }
}

TEST_F(Save, AMeanOfTheWeightsComesAndGoesWithTheRest) {
  const auto save = [this](SaveStage last) {
    CheckpointContent content = first_.content();
    content.average = named_tensors(*second_.model);
    first_.state.step = 1;
    (void)save_checkpoint(run_, content, [last](SaveStage passed) {
      if (passed == last) {
        ::_exit(kCrashed);
      }
    });
    return 0;
  };
  start_anew();
  for (const SaveStage stage : {SaveStage::model_written, SaveStage::manifest_written}) {
    ASSERT_EQ(status_of_child([&] { return save(stage); }), kCrashed);
    (void)RunDirectory(run_);  // what a resume does
    EXPECT_TRUE(fs::is_empty(checkpoints()));
  }
  ASSERT_EQ(status_of_child([&] { return save(SaveStage::renamed); }), kCrashed);
  const Checkpoint with = Checkpoint::open(run_);
  ASSERT_TRUE(with.has_average());
  const auto mean = with.load_model(at::kCPU, Weights::ema);
  EXPECT_EQ(first_difference(named_tensors(*mean), named_tensors(*second_.model)), "");
  expect_loads(run_, first_);
  first_.save(run_, 1);  // takes its place
  const Checkpoint without = Checkpoint::open(run_);
  EXPECT_FALSE(without.has_average());
  EXPECT_THROW((void)without.load_model(at::kCPU, Weights::ema), UserError);
  EXPECT_EQ(entries(), 1);
}

TEST_F(Save, KilledWhileItReplacesOneOfTheSameStepLeavesTheOldOrTheNew) {
  for (const SaveStage stage : kStages) {
    SCOPED_TRACE(static_cast<int>(stage));
    start_anew();
    first_.save(run_, 1);
    crash_at(stage, second_, 1);
    const RunDirectory directory(run_);
    EXPECT_THAT(directory.checkpoint_steps(), ElementsAre(1));
    expect_loads(run_, stage >= SaveStage::renamed ? second_ : first_);
  }
}

TEST_F(Save, AfterACrashGoesThrough) {
  crash_at(SaveStage::manifest_written, first_, 1);
  second_.save(run_, 1);
  expect_loads(run_, second_);
}

TEST_F(Save, ReplacesOneOfTheSameStepAndLeavesNothingElse) {
  first_.save(run_, 1);
  second_.save(run_, 1);
  expect_loads(run_, second_);
  EXPECT_EQ(entries(), 1);
}

TEST_F(Save, ThatFindsNoSpaceKeepsTheOlderAndRemovesItsTraces) {
  first_.save(run_, 1);
  const int status = status_of_child([this] {
    ::signal(SIGXFSZ, SIG_IGN);  // so that a write past the limit fails like one on a full disk
    const rlimit limit{2000, 2000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    try {
      second_.save(run_, 2);
    } catch (const WriteError&) {
      return 3;
    }
    return 0;
  });
  EXPECT_EQ(status, 3);
  expect_loads(run_, first_);
  EXPECT_EQ(entries(), 1);
}

TEST_F(Save, ThatCannotGetItsNameKeepsTheOlderAndRemovesItsTraces) {
  first_.save(run_, 1);
  EXPECT_THROW(second_.save(run_, 2,
                            [this](SaveStage stage) {
                              if (stage == SaveStage::manifest_written) {
                                fs::remove_all(checkpoints() / temporary_name(2));
                              }
                            }),
               WriteError);
  expect_loads(run_, first_);
  EXPECT_EQ(entries(), 1);
}

TEST_F(Save, GivenUpAtAnyStageKeepsTheOlderAndRemovesItsTraces) {
  first_.save(run_, 1);
  for (const SaveStage stage : kStages) {
    if (stage == SaveStage::renamed) {
      break;
    }
    for (const std::int64_t step : {1, 2}) {
      EXPECT_THROW(second_.save(run_, step,
                                [stage](SaveStage passed) {
                                  if (passed == stage) {
                                    throw WriteError("given up");
                                  }
                                }),
                   WriteError);
      expect_loads(run_, first_);
      EXPECT_EQ(entries(), 1);
    }
  }
}

TEST_F(Save, DoesNotMakeTheRunDirectoryAnew) {
  EXPECT_THROW((void)save_checkpoint(run_, first_.content()), WriteError);
  EXPECT_FALSE(fs::exists(run_));
}

TEST_F(Save, ThatReplacesOneKeepsWhatOthersPutIntoIt) {
  first_.save(run_, 1);
  write_file(checkpoints() / "step-00000001/notes.txt", "mine");
  second_.save(run_, 1);
  expect_loads(run_, second_);
  EXPECT_EQ(read_file(checkpoints() / "step-00000001/notes.txt"), "mine");
  EXPECT_EQ(entries(), 1);
}

TEST_F(Save, ThatReplacesALinkToACheckpointLeavesThatOneAlone) {
  first_.save(run_, 1);
  fs::rename(checkpoints() / "step-00000001", directory_ / "elsewhere");
  fs::create_directory_symlink(directory_ / "elsewhere", checkpoints() / "step-00000001");
  second_.save(run_, 1);
  expect_loads(run_, second_);
  expect_loads(directory_ / "elsewhere", first_);
  EXPECT_EQ(entries(), 1);
}

TEST_F(Save, DoesNotTakeTheNameOfAFile) {
  first_.save(run_, 1);
  write_file(checkpoints() / "step-00000002", "mine");
  EXPECT_THROW(second_.save(run_, 2), WriteError);
  EXPECT_EQ(read_file(checkpoints() / "step-00000002"), "mine");
  EXPECT_EQ(entries(), 2);
}

TEST_F(Save, IntoAFileIsRefused) {
  write_file(run_, "");
  EXPECT_THROW((void)save_checkpoint(run_, first_.content()), WriteError);
}

}  // namespace
}  // namespace transnormer
