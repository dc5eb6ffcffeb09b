#include "checkpoint/run_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <utility>

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
    write_file(checkpoints_ / name / "config.json", R"({"checkpoint": {"keep_every": 0}})");
  }
  void put_steps(int last) const {
    for (int step = 1; step <= last; ++step) {
      put("step-0000000" + std::to_string(step));
    }
  }

  static CheckpointConfig keeping_no_best() {
    CheckpointConfig config;
    config.keep_best = false;
    return config;
  }
  [[nodiscard]] std::ptrdiff_t entries() const {
    return std::distance(fs::directory_iterator(checkpoints_), fs::directory_iterator());
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
}

TEST_F(RunDirectoryTest, OnTrialGoesAgainWithAllThatWasMadeForIt) {
  fs::create_directory(directory_ / "runs");
  { const RunDirectory run(path_); }
  EXPECT_TRUE(fs::is_empty(directory_ / "runs"));
  {
    RunDirectory run(path_);
    RunDirectory moved(std::move(run));
    moved.keep();
  }
  EXPECT_TRUE(fs::exists(path_ / ".lock"));
}

TEST_F(RunDirectoryTest, OnTrialLeavesWhatOthersPutThere) {
  {
    const RunDirectory run(path_);
    write_file(path_ / "notes.txt", "mine");
  }
  EXPECT_EQ(read_file(path_ / "notes.txt"), "mine");
  EXPECT_FALSE(fs::exists(path_ / ".lock"));
  { const RunDirectory run(path_); }
  EXPECT_EQ(read_file(path_ / "notes.txt"), "mine");
}

TEST_F(RunDirectoryTest, IsThePlaceThatItsPathComesTo) {
  fs::create_directory(directory_ / "d");
  write_file(directory_ / "d/file", "mine");
  for (const char* path : {"absent/../d", "d/.", "d/", "absent/x/../../d/absent/.."}) {
    const RunDirectory run(directory_ / path);
    EXPECT_EQ(run.path(), directory_ / "d") << path;
  }
  EXPECT_EQ(read_file(directory_ / "d/file"), "mine");
  EXPECT_EQ(std::distance(fs::directory_iterator(directory_.path()), fs::directory_iterator()), 1);
  EXPECT_EQ(RunDirectory(directory_ / "absent/..").path(), directory_.path());
  EXPECT_EQ(read_file(directory_ / "d/file"), "mine");
}

TEST_F(RunDirectoryTest, KnowsWhetherItIsStillTheOneThatWasLocked) {
  RunDirectory run(path_);
  run.keep();
  EXPECT_TRUE(run.is_ours());
  fs::rename(path_, directory_ / "moved");
  EXPECT_FALSE(run.is_ours());
  {
    RunDirectory other(path_);
    other.keep();
    EXPECT_TRUE(other.is_ours());
    EXPECT_THAT(test::user_error_of([&] { run.require_ours(); }),
                HasSubstr(path_.string() + ": is no longer the directory of this run"));
  }
  fs::remove_all(path_);
  fs::rename(directory_ / "moved", path_);
  EXPECT_TRUE(run.is_ours());
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
  put(".tmp-step-00000007.123");
  write_file(checkpoints_ / ".tmp-step-00000007.123/model.safetensors.tmp.123", "half");
  put(".old-step-00000003");
  put("step-00000004");
  put(".old-step-00000004");
  fs::create_symlink("step-00000001", checkpoints_ / "latest.tmp.77");
  const RunDirectory run(path_);
  EXPECT_THAT(run.checkpoint_steps(), ElementsAre(1, 3, 4));
  EXPECT_EQ(entries(), 3);
}

TEST_F(RunDirectoryTest, IsNotCleanedOfWhatIsNotOurs) {
  for (const char* name :
       {".tmp-work", ".tmp-step-5", ".tmp-step-00000005.mine", ".old-step-00000005x",
        "latest.tmp.mine", "latest.tmp.5", "best.tmp.", "step-00000001.tmp.4"}) {
    make_directories(checkpoints_ / name);
    write_file(checkpoints_ / name / "model.safetensors", "mine");
  }
  const std::ptrdiff_t before = entries();
  const RunDirectory run(path_);
  EXPECT_EQ(entries(), before);
  EXPECT_EQ(read_file(checkpoints_ / ".tmp-work/model.safetensors"), "mine");
}

TEST_F(RunDirectoryTest, LeavesTheFilesOfOthersInWhatItRemoves) {
  put_steps(5);
  put(".tmp-step-00000006.9");
  put(".old-step-00000005");
  for (const char* name :
       {"step-00000001", "step-00000002", ".tmp-step-00000006.9", ".old-step-00000005"}) {
    write_file(checkpoints_ / name / "notes.txt", name);
  }
  fs::create_directory(checkpoints_ / "step-00000002/plots");
  write_file(checkpoints_ / "step-00000002/plots/a.png", "mine");
  RunDirectory run(path_);
  run.remove_old_checkpoints({}, -1);
  EXPECT_THAT(run.checkpoint_steps(), ElementsAre(4, 5));
  EXPECT_EQ(read_file(checkpoints_ / "step-00000001/notes.txt"), "step-00000001");
  EXPECT_EQ(read_file(checkpoints_ / "step-00000002/plots/a.png"), "mine");
  EXPECT_EQ(read_file(checkpoints_ / "step-00000006/notes.txt"), ".tmp-step-00000006.9");
  EXPECT_EQ(read_file(checkpoints_ / "step-00000005/notes.txt"), ".old-step-00000005");
  EXPECT_FALSE(fs::exists(checkpoints_ / "step-00000001/manifest.json"));
  EXPECT_FALSE(fs::exists(checkpoints_ / "step-00000003"));
}

TEST_F(RunDirectoryTest, RemovesALinkToACheckpointAndNotWhereItLeads) {
  put_steps(3);
  fs::rename(checkpoints_ / "step-00000001", directory_ / "elsewhere");
  fs::create_directory_symlink(directory_ / "elsewhere", checkpoints_ / "step-00000001");
  RunDirectory run(path_);
  run.remove_old_checkpoints({}, -1);
  EXPECT_THAT(run.checkpoint_steps(), ElementsAre(1, 2, 3));  // who made it wants it
  run.remove_checkpoints_after(0);
  EXPECT_THAT(run.checkpoint_steps(), IsEmpty());
  EXPECT_FALSE(has_entry(checkpoints_ / "step-00000001"));
  EXPECT_TRUE(fs::exists(directory_ / "elsewhere/manifest.json"));
}

TEST_F(RunDirectoryTest, SetsDamagedCheckpointsAsideBesideEarlierOnes) {
  RunDirectory run(path_);
  for (const char* name : {".damaged-step-00000001", ".damaged-step-00000001.1"}) {
    put("step-00000001");
    run.set_aside({1});
    EXPECT_TRUE(fs::exists(checkpoints_ / name / "manifest.json"));
  }
  EXPECT_EQ(entries(), 2);
}

TEST_F(RunDirectoryTest, LinksTheNewestAndTheBest) {
  put_steps(3);
  RunDirectory run(path_);
  run.link({}, 1);
  EXPECT_EQ(fs::read_symlink(checkpoints_ / "latest"), "step-00000003");
  EXPECT_EQ(fs::read_symlink(checkpoints_ / "best"), "step-00000001");
  run.link({}, 2);
  EXPECT_EQ(fs::read_symlink(checkpoints_ / "best"), "step-00000002");
  run.link({}, 9);   // the best one could not be saved: the one before stays
  run.link({}, -1);  // none is the best any more, or yet
  EXPECT_EQ(fs::read_symlink(checkpoints_ / "best"), "step-00000002");
  run.link(keeping_no_best(), 2);
  EXPECT_FALSE(has_entry(checkpoints_ / "best"));
}

TEST_F(RunDirectoryTest, LeavesAloneWhatIsNoLinkUnderTheNamesOfLinks) {
  put_steps(3);
  put("best");
  write_file(checkpoints_ / "latest", "mine");
  write_file(path_ / "config.json.tmp.17", "half");
  write_file(path_ / "metrics.jsonl.tmp.17.2", "half");
  write_file(path_ / "notes.tmp.17", "mine");
  RunDirectory run(path_);
  EXPECT_FALSE(fs::exists(path_ / "config.json.tmp.17"));
  EXPECT_FALSE(fs::exists(path_ / "metrics.jsonl.tmp.17.2"));
  EXPECT_TRUE(fs::exists(path_ / "notes.tmp.17"));
  run.link({}, 1);
  run.link(keeping_no_best(), 1);
  run.remove_old_checkpoints({}, -1);
  EXPECT_TRUE(fs::exists(checkpoints_ / "best/manifest.json"));
  EXPECT_EQ(read_file(checkpoints_ / "latest"), "mine");
  EXPECT_THAT(run.checkpoint_steps(), ElementsAre(2, 3));
}

TEST_F(RunDirectoryTest, KeepsTheLastTheBestAndTheMilestones) {
  put_steps(9);
  RunDirectory run(path_);
  CheckpointConfig config;
  config.keep_last = 2;
  config.keep_best = true;
  config.keep_every = 3;
  run.remove_old_checkpoints(config, 2);
  EXPECT_THAT(run.checkpoint_steps(), ElementsAre(2, 3, 6, 8, 9));
  EXPECT_EQ(entries(), 5);
}

TEST_F(RunDirectoryTest, KeepsTheLinkedBestUntilThereIsAnother) {
  put_steps(5);
  RunDirectory run(path_);
  run.link({}, 1);
  for (const std::int64_t not_there : {77, -1}) {
    run.remove_old_checkpoints({}, not_there);
    EXPECT_THAT(run.checkpoint_steps(), ElementsAre(1, 4, 5));
  }
  run.remove_old_checkpoints({}, 5);
  EXPECT_THAT(run.checkpoint_steps(), ElementsAre(4, 5));
}

TEST_F(RunDirectoryTest, LeavesCheckpointsOfANewerFormatWhole) {
  put_steps(4);
  write_file(checkpoints_ / "step-00000001/manifest.json", R"({"format": 2})");
  write_file(checkpoints_ / "step-00000001/model.safetensors", "theirs");
  write_file(checkpoints_ / "step-00000004/manifest.json", R"({"format": 2})");
  RunDirectory run(path_);
  run.remove_old_checkpoints({}, -1);
  run.remove_checkpoints_after(2);
  EXPECT_THAT(run.checkpoint_steps(), ElementsAre(1, 4));
  EXPECT_EQ(read_file(checkpoints_ / "step-00000001/model.safetensors"), "theirs");
}

TEST_F(RunDirectoryTest, ThatIsNoLongerOursIsNotChanged) {
  put_steps(4);
  RunDirectory run(path_);
  run.keep();
  fs::rename(path_ / ".lock", path_ / "lock");
  EXPECT_THROW(run.remove_old_checkpoints({}, -1), WriteError);
  EXPECT_THROW(run.remove_checkpoints_after(1), WriteError);
  EXPECT_THROW(run.set_aside({1}), WriteError);
  EXPECT_THROW(run.link({}, 1), WriteError);
  EXPECT_THAT(run.checkpoint_steps(), ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(entries(), 4);
}

TEST_F(RunDirectoryTest, LeavesLinksThatLeadElsewhereUnderTheNamesOfLinks) {
  put_steps(3);
  fs::create_symlink(directory_ / "elsewhere/step-00000001", checkpoints_ / "latest");
  fs::create_symlink("../notes", checkpoints_ / "best");
  RunDirectory run(path_);
  run.link({}, 1);
  run.link(keeping_no_best(), 1);
  EXPECT_EQ(fs::read_symlink(checkpoints_ / "latest"), directory_ / "elsewhere/step-00000001");
  EXPECT_EQ(fs::read_symlink(checkpoints_ / "best"), "../notes");
}

TEST_F(RunDirectoryTest, IsNotLockedThroughALink) {
  make_directories(path_);
  write_file(directory_ / "mine", "");
  fs::create_symlink(directory_ / "mine", path_ / ".lock");
  EXPECT_THROW(const RunDirectory run(path_), WriteError);
  EXPECT_EQ(read_file(directory_ / "mine"), "");
}

TEST_F(RunDirectoryTest, LeavesALockFileOfSomethingElseAsItIs) {
  make_directories(path_);
  write_file(path_ / ".lock", "of another tool");
  { const RunDirectory run(path_); }
  EXPECT_EQ(read_file(path_ / ".lock"), "of another tool");
}

TEST_F(RunDirectoryTest, KeepsForGoodWhatTheConfigOfACheckpointKeeps) {
  put_steps(8);
  for (const int step : {2, 4}) {
    const std::string name = "step-0000000" + std::to_string(step);
    write_file(checkpoints_ / name / "config.json", R"({"checkpoint": {"keep_every": 4}})");
  }
  fs::remove(checkpoints_ / "step-00000003/config.json");  // nobody knows
  RunDirectory run(path_);
  run.remove_old_checkpoints({}, -1);
  EXPECT_THAT(run.checkpoint_steps(), ElementsAre(3, 4, 7, 8));
}

TEST_F(RunDirectoryTest, KeepsTheNewestUpToTheStepThatIsKnownToBeSound) {
  put_steps(8);
  RunDirectory run(path_);
  run.remove_old_checkpoints({}, -1, 5);
  EXPECT_THAT(run.checkpoint_steps(), ElementsAre(5, 7, 8));
  run.remove_old_checkpoints({}, -1, 6);
  EXPECT_THAT(run.checkpoint_steps(), ElementsAre(5, 7, 8));
  run.remove_old_checkpoints({}, -1);
  EXPECT_THAT(run.checkpoint_steps(), ElementsAre(7, 8));
}

TEST_F(RunDirectoryTest, DropsTheBestWhereItIsNotToBeKept) {
  put_steps(4);
  RunDirectory run(path_);
  run.link({}, 1);
  run.remove_old_checkpoints(keeping_no_best(), 1);
  EXPECT_THAT(run.checkpoint_steps(), ElementsAre(3, 4));
}

TEST_F(RunDirectoryTest, RemovesNothingWhileThereAreFew) {
  put_steps(2);
  RunDirectory run(path_);
  run.remove_old_checkpoints({}, -1);
  EXPECT_THAT(run.checkpoint_steps(), ElementsAre(1, 2));
}

TEST_F(RunDirectoryTest, ForgetsWhatCameAfterAStep) {
  put_steps(5);
  RunDirectory run(path_);
  run.link({}, 4);
  run.remove_checkpoints_after(3);
  EXPECT_THAT(run.checkpoint_steps(), ElementsAre(1, 2, 3));
  run.link({}, 4);  // it led there
  EXPECT_EQ(fs::read_symlink(checkpoints_ / "latest"), "step-00000003");
  EXPECT_FALSE(has_entry(checkpoints_ / "best"));
}

}  // namespace
}  // namespace transnormer
