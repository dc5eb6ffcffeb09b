#include "checkpoint/run_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

#include "checkpoint/fixture.h"
#include "util/error.h"
#include "util/file.h"
#include "util/temporary_directory.h"

namespace transnormer {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class RunDirectoryTest : public ::testing::Test {
 protected:
  // A directory that counts as a whole checkpoint.
  void put(const std::string& name) const {
    make_directories(checkpoints_ / name);
    write_file(checkpoints_ / name / "manifest.json", "{}");
  }
  void put_steps(int last) const {
    for (int step = 1; step <= last; ++step) {
      put("step-0000000" + std::to_string(step));
    }
  }

  test::TemporaryDirectory directory_;
  fs::path path_ = directory_ / "runs/new";
  fs::path checkpoints_ = path_ / "checkpoints";
};

TEST_F(RunDirectoryTest, IsMadeWithItsParents) {
  const RunDirectory run(path_);
  EXPECT_TRUE(fs::is_directory(path_));
  EXPECT_FALSE(run.holds_a_run());
  EXPECT_THAT(run.checkpoint_steps(), IsEmpty());
  EXPECT_EQ(run.best_step(), std::nullopt);
}

TEST_F(RunDirectoryTest, IsRefusedWhileAnotherHoldsItAndNamesTheProcess) {
  {
    const RunDirectory first(path_);
    EXPECT_THAT(
        test::user_error_of([this] { const RunDirectory second(path_); }),
        AllOf(HasSubstr(path_.string()), HasSubstr("process " + std::to_string(::getpid()))));
  }
  EXPECT_NO_THROW(const RunDirectory third(path_));
}

TEST_F(RunDirectoryTest, SaysWhyItCannotBeMade) {
  write_file(directory_ / "runs", "");
  EXPECT_THROW(const RunDirectory run(path_), WriteError);
}

TEST_F(RunDirectoryTest, HoldsARunOnceAConfigOrACheckpointIsThere) {
  const RunDirectory run(path_);
  write_file(path_ / "config.json", "{}");
  EXPECT_TRUE(run.holds_a_run());
  fs::remove(path_ / "config.json");
  put_steps(1);
  EXPECT_TRUE(run.holds_a_run());
}

TEST_F(RunDirectoryTest, ListsWholeCheckpointsOnlyInTheOrderOfTheirSteps) {
  put("step-00000300");
  put("step-00000020");
  put("step-123456789");
  put("step-20");  // not a name of ours
  put("step-00000040x");
  put("keep-00000050");
  fs::create_directories(checkpoints_ / "step-00000060");  // without a manifest
  const RunDirectory run(path_);
  EXPECT_THAT(run.checkpoint_steps(), ElementsAre(20, 300, 123456789));
  EXPECT_EQ(run.checkpoint_path(20), checkpoints_ / "step-00000020");
}

TEST_F(RunDirectoryTest, IsCleanedOfWhatAKilledSaveLeft) {
  put("step-00000001");
  put(".tmp-step-00000002");
  put(".old-step-00000003");
  put("step-00000004");
  put(".old-step-00000004");
  fs::create_symlink("step-00000001", checkpoints_ / "latest.tmp.77");
  const RunDirectory run(path_);
  EXPECT_THAT(run.checkpoint_steps(), ElementsAre(1, 3, 4));
  EXPECT_EQ(std::distance(fs::directory_iterator(checkpoints_), fs::directory_iterator()), 3);
}

TEST_F(RunDirectoryTest, LinksTheBest) {
  put_steps(2);
  RunDirectory run(path_);
  run.link_best(1);
  EXPECT_EQ(run.best_step(), 1);
  run.link_best(2);
  EXPECT_EQ(run.best_step(), 2);
  EXPECT_EQ(fs::read_symlink(checkpoints_ / "best"), "step-00000002");
}

TEST_F(RunDirectoryTest, KeepsTheLastTheBestAndTheMilestones) {
  put_steps(9);
  RunDirectory run(path_);
  run.link_best(2);
  CheckpointConfig config;
  config.keep_last = 2;
  config.keep_best = true;
  config.keep_every = 3;
  run.remove_old_checkpoints(config);
  EXPECT_THAT(run.checkpoint_steps(), ElementsAre(2, 3, 6, 8, 9));
  EXPECT_EQ(std::distance(fs::directory_iterator(checkpoints_), fs::directory_iterator()), 6);
}

TEST_F(RunDirectoryTest, DropsTheBestAndItsLinkWhereItIsNotToBeKept) {
  put_steps(4);
  RunDirectory run(path_);
  run.link_best(1);
  CheckpointConfig config;
  config.keep_best = false;
  run.remove_old_checkpoints(config);
  EXPECT_THAT(run.checkpoint_steps(), ElementsAre(3, 4));
  EXPECT_FALSE(fs::is_symlink(checkpoints_ / "best"));
}

TEST_F(RunDirectoryTest, RemovesNothingWhileThereAreFew) {
  put_steps(2);
  RunDirectory run(path_);
  run.remove_old_checkpoints({});
  EXPECT_THAT(run.checkpoint_steps(), ElementsAre(1, 2));
}

TEST_F(RunDirectoryTest, ForgetsWhatCameAfterAStep) {
  put_steps(5);
  fs::create_symlink("step-00000005", checkpoints_ / "latest");
  RunDirectory run(path_);
  run.link_best(4);
  run.remove_checkpoints_after(3);
  EXPECT_THAT(run.checkpoint_steps(), ElementsAre(1, 2, 3));
  EXPECT_EQ(fs::read_symlink(checkpoints_ / "latest"), "step-00000003");
  EXPECT_EQ(run.best_step(), std::nullopt);
  EXPECT_FALSE(fs::is_symlink(checkpoints_ / "best"));
}

}  // namespace
}  // namespace transnormer
