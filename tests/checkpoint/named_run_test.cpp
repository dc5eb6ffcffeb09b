#include "checkpoint/named_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "checkpoint/fixture.h"
#include "checkpoint/layout.h"
#include "config/load.h"
#include "util/error.h"
#include "util/file.h"
#include "util/temporary_directory.h"

namespace transnormer {
namespace {

namespace fs = std::filesystem;
using test::TinyTraining;
using testing::AllOf;
using testing::HasSubstr;

class NamedRunTest : public testing::Test {
 protected:
  NamedRunTest() { fs::create_directories(run() / kCheckpointsDirectory); }

  [[nodiscard]] fs::path run() const { return directory_ / "run"; }
  [[nodiscard]] fs::path config() const { return run() / kConfigFile; }

  // As of a run that has saved nothing yet.
  void begin_run() const {
    write_file(config(), config_to_json(TinyTraining().config));
    write_file(run() / kMetricsFile, "");
  }

  [[nodiscard]] fs::path save(std::int64_t step) const {
    TinyTraining training;
    training.state.step = step;
    return save_checkpoint(run(), {.config = training.config,
                                   .model = named_tensors(*training.model),
                                   .optimizer = training.optimizer->named_state(),
                                   .state = training.state,
                                   .tokenizer = *training.tokenizer,
                                   .unigram_counts = training.unigram_counts});
  }

  static std::string fault_of(const fs::path& named) {
    try {
      (void)named_run(named);
    } catch (const UserError& error) {
      return error.what();
    }
    return "";
  }

  test::TemporaryDirectory directory_;
};

TEST_F(NamedRunTest, ADirectoryAndTheConfigInItMeanTheRun) {
  begin_run();
  for (const fs::path& named : {run(), run() / "", config()}) {
    const auto found = named_run(named);
    ASSERT_TRUE(found) << named;
    EXPECT_TRUE(fs::equivalent(found->directory, run()));
    EXPECT_TRUE(fs::equivalent(found->config, config()));
    EXPECT_EQ(found->warning, "");
  }
}

TEST_F(NamedRunTest, AConfigOfAnotherNameOrAloneIsNoRun) {
  begin_run();
  write_file(run() / "mine.json", "{}");
  EXPECT_FALSE(named_run(run() / "mine.json"));
  EXPECT_FALSE(named_run(directory_ / "nowhere"));
  fs::create_directory(directory_ / "project");
  fs::copy_file(config(), directory_ / "project" / kConfigFile);
  EXPECT_FALSE(named_run(directory_ / "project" / kConfigFile));
  EXPECT_THAT(fault_of(directory_ / "project"), HasSubstr("holds no run"));
}

TEST_F(NamedRunTest, WithoutItsConfigTheNewestWholeCheckpointHasOne) {
  const fs::path older = save(3);
  const fs::path newer = save(6);
  const auto missing = named_run(run());
  ASSERT_TRUE(missing);
  EXPECT_EQ(missing->config, newer / kConfigFile);
  EXPECT_THAT(missing->warning, AllOf(HasSubstr("is not there"), HasSubstr("step-00000006")));
  write_file(newer / kModelFile, "damaged");
  for (const char* text : {"", "{\"run_name\": ", "\x01\x02"}) {
    write_file(config(), text);
    const auto damaged = named_run(config());
    ASSERT_TRUE(damaged);
    EXPECT_EQ(damaged->config, older / kConfigFile);
    EXPECT_THAT(damaged->warning, HasSubstr("is damaged"));
  }
  write_file(older / kModelFile, "damaged");
  EXPECT_THAT(fault_of(run()), HasSubstr("no checkpoint of this run is whole"));
}

TEST_F(NamedRunTest, AConfigThatNoRunWroteIsNotReplacedByThatOfACheckpoint) {
  (void)save(3);
  write_file(config(), "{\"model\": {\"dim\": 32}} // by hand");
  EXPECT_EQ(look_at_config(run()), RunConfigFile::other);
  EXPECT_THAT(fault_of(run()), HasSubstr("is not the config of the run"));
}

TEST_F(NamedRunTest, ACheckpointIsNoRun) {
  begin_run();
  EXPECT_THAT(fault_of(save(3)), AllOf(HasSubstr("a checkpoint; expected a config or a run"),
                                       HasSubstr("--init-from")));
}

TEST_F(NamedRunTest, ADirectoryWithoutARunSaysWhatWasExpected) {
  EXPECT_THAT(fault_of(directory_.path()), HasSubstr("expected a run directory"));
  EXPECT_THAT(fault_of(run()), HasSubstr("expected a run directory"));  // nothing is in it yet
}

}  // namespace
}  // namespace transnormer
