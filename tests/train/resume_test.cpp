// Going on from a checkpoint: which one, the same bits, and what may change.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "log/console.h"
#include "train/begin_writing.h"
#include "train/small_run.h"
#include "train/training_run.h"
#include "util/error.h"
#include "util/file.h"
#include "util/hash.h"

namespace transnormer {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using Sets = std::vector<std::string>;

Sets with(Sets sets, const std::string& set) {
  sets.push_back(set);
  return sets;
}

void damage(const fs::path& file) {
  std::string bytes = read_file(file);
  bytes[bytes.size() / 2] ^= 1;
  std::ofstream(file, std::ios::binary) << bytes;
}

std::string fault_of(const SmallRun& runs, const std::string& name, const Sets& sets) {
  try {
    (void)set_up(runs.request(name, sets));
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

// Rewrites a file of a checkpoint as if it had been saved so.
void edit(const fs::path& checkpoint, const std::string& name,
          const std::function<void(std::string&)>& change) {
  const std::string before = read_file(checkpoint / name);
  std::string after = before;
  change(after);
  ASSERT_NE(before, after) << name;
  write_file(checkpoint / name, after);
  std::string manifest = read_file(checkpoint / "manifest.json");
  manifest.replace(manifest.find(sha256(before)), 64, sha256(after));
  const auto size = [&name](const std::string& bytes) {
    return '"' + name + "\": {\n      \"size\": " + std::to_string(bytes.size());
  };
  const std::size_t at = manifest.find(size(before));
  ASSERT_NE(at, std::string::npos) << manifest;
  manifest.replace(at, size(before).size(), size(after));
  write_file(checkpoint / "manifest.json", manifest);
}

void replace(std::string& text, const std::string& before, const std::string& after) {
  const std::size_t at = text.find(before);
  ASSERT_NE(at, std::string::npos) << before << " in " << text;
  text.replace(at, before.size(), after);
}

// As earlier versions saved it.
void mark_as_amid_skips(const fs::path& checkpoint) {
  edit(checkpoint, "state.json", [](std::string& state) {
    replace(state, "\"consecutive_skips\": 0", "\"consecutive_skips\": 3");
  });
}

std::string valid_set(const SmallRun& runs, const std::string& name) {
  return "data.valid=" + (runs.path() / name).string();
}

// 23 samples by batches of 4: step 3 lies within the first epoch, step 9 within the second.
class ResumeEqualsContinuous : public testing::TestWithParam<Sets> {};

TEST_P(ResumeEqualsContinuous, BitForBit) {
  const SmallRun runs;
  const Sets sets = with(GetParam(), "checkpoint.every=3");
  ASSERT_EQ(runs.train("continuous", with(sets, "train.steps=12")), ExitStatus::done);
  ASSERT_EQ(runs.train("stopped", with(sets, "train.steps=3")), ExitStatus::done);
  ASSERT_EQ(runs.train("stopped", with(sets, "train.steps=9")), ExitStatus::done);
  ASSERT_EQ(runs.train("stopped", with(sets, "train.steps=12")), ExitStatus::done);
  for (const std::int64_t step : {6, 9, 12}) {
    expect_same_weights(runs, "continuous", "stopped", step);
  }
  for (const std::int64_t step : {6, 12}) {  // at step 9 only one of them has ended
    expect_same_state(runs, "continuous", "stopped", step);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Settings, ResumeEqualsContinuous,
    testing::Values(Sets{}, Sets{"train.micro_batch_size=3"},
                    Sets{"model.dropout=0.3", "model.attention_dropout=0.2"},
                    Sets{"train.precision=bf16", "optimizer.clip_norm=0.5"},
                    Sets{"train.precision=fp16"}, Sets{"model.variant=t1"},
                    // Tensors large enough for two.
                    Sets{"train.threads=2", "model.dim=128", "train.global_batch_size=20"},
                    Sets{"model.variant=transformer", "train.activation_checkpointing=true"}));

TEST(Resume, GoesOnWithTheSameBitsAfterASkippedUpdateAndALoweredLossScale) {
  for (const std::string precision : {"fp16", "fp32"}) {
    const SmallRun runs;
    const Sets sets{"train.precision=" + precision, "checkpoint.every=3"};
    const auto run_to = [&](const std::string& name, const std::string& steps) {
      const auto run = set_up(runs.request(name, with(sets, "train.steps=" + steps)));
      poison_gradients(*run, 1, 2);
      Recorded recorded;
      ASSERT_EQ(run_loop(*run, recorded), ExitStatus::done);
      EXPECT_EQ(run->state.skipped_updates, 1);
      EXPECT_EQ(run->scaler.scale(), precision == "fp16" ? 32768 : 1);
    };
    run_to("continuous", "9");
    run_to("stopped", "3");
    run_to("stopped", "9");
    for (const std::int64_t step : {6, 9}) {
      expect_same_weights(runs, "continuous", "stopped", step);
      expect_same_state(runs, "continuous", "stopped", step);
    }
  }
}

TEST(Resume, ADifferentSeedGivesDifferentWeights) {
  const SmallRun runs;
  (void)runs.train("one");
  (void)runs.train("two", {"train.seed=2"});
  EXPECT_NE(runs.file_of("one", 6, "model.safetensors"),
            runs.file_of("two", 6, "model.safetensors"));
}

TEST(Resume, ADamagedNewestCheckpointFallsBackToTheOneBefore) {
  const SmallRun runs;
  (void)runs.train("whole", {"train.steps=8"});
  (void)runs.train("damaged");
  damage(runs.checkpoint("damaged", 6) / "model.safetensors");
  const auto run = set_up(runs.request("damaged", {"train.steps=8"}));
  EXPECT_EQ(run->state.step, 4);
  EXPECT_THAT(run->warnings, testing::Contains(HasSubstr("damaged")));
}

TEST(Resume, AfterFallingBackTheRunEndsWithTheSameBits) {
  const SmallRun runs;
  (void)runs.train("whole", {"train.steps=8"});
  (void)runs.train("damaged");
  damage(runs.checkpoint("damaged", 6) / "optimizer.safetensors");
  const std::string damaged_bytes = runs.file_of("damaged", 6, "optimizer.safetensors");
  const fs::path aside = runs.path() / "damaged" / "checkpoints" / ".damaged-step-00000006";
  ASSERT_EQ(runs.train("damaged", {"train.steps=8"}), ExitStatus::done);
  EXPECT_EQ(read_file(aside / "optimizer.safetensors"), damaged_bytes);
  expect_same_weights(runs, "whole", "damaged", 6);
  expect_same_weights(runs, "whole", "damaged", 8);
}

TEST(Resume, WhereEveryCheckpointIsDamagedNothingIsOverwritten) {
  const SmallRun runs;
  (void)runs.train("run");
  for (const std::int64_t step : {2, 4, 6}) {
    damage(runs.checkpoint("run", step) / "model.safetensors");
  }
  EXPECT_THAT(fault_of(runs, "run", {}), HasSubstr("all of its checkpoints are damaged"));
  EXPECT_TRUE(runs.has_checkpoint("run", 6));
}

// A link that no system can follow: there, but not to be read, as on a disk that fails.
TEST(Resume, ACheckpointThatCannotBeReadIsNotPassedOver) {
  const SmallRun runs;
  (void)runs.train("run");
  const fs::path file = runs.checkpoint("run", 6) / "manifest.json";
  fs::remove(file);
  fs::create_symlink(std::string(300, 'x'), file);
  EXPECT_THAT(fault_of(runs, "run", {"train.steps=8"}),
              testing::AllOf(HasSubstr("manifest.json"), HasSubstr("cannot be read")));
}

TEST(Resume, ACheckpointWithALinkThatLeadsToItselfIsPassedOver) {
  for (const char* name : {"model.safetensors", "state.json", "manifest.json"}) {
    const SmallRun runs;
    (void)runs.train("run");
    const fs::path file = runs.checkpoint("run", 6) / name;
    fs::remove(file);
    fs::create_symlink(file.filename(), file);
    const auto run = set_up(runs.request("run", {"train.steps=8"}));
    EXPECT_EQ(run->state.step, 4) << name;
    EXPECT_THAT(run->damaged, testing::ElementsAre(6)) << name;
    EXPECT_THAT(run->warnings, testing::Contains(HasSubstr(name)));
  }
}

TEST(Resume, ACheckpointWhoseConfigIsAtFaultIsNotPassedOver) {
  const SmallRun runs;
  (void)runs.train("run");
  edit(runs.checkpoint("run", 6), "config.json",
       [](std::string& config) { replace(config, "\"dim\"", "\"dmi\""); });
  EXPECT_THAT(fault_of(runs, "run", {"train.steps=8"}), HasSubstr("dmi"));
}

TEST(Resume, TheBestIsLinkedAgainOnlyWhereItIsKept) {
  const SmallRun runs;
  const std::string valid = valid_set(runs, "valid.txt");
  (void)runs.train("run", {valid, "checkpoint.keep_best=false"});
  const fs::path best = runs.path() / "run" / "checkpoints" / "best";
  for (const bool keeps : {false, true}) {
    const auto run = set_up(
        runs.request("run", {valid, "train.steps=8",
                             keeps ? "checkpoint.keep_best=true" : "checkpoint.keep_best=false"}));
    (void)begin_writing(*run);
    EXPECT_EQ(fs::is_symlink(best), keeps);
    log::close_file();
  }
}

TEST(Resume, WarnsOfAWarmUpThatTheEpochsEndBefore) {
  const SmallRun runs;
  const auto warnings = [&runs](const std::string& epochs) {
    return set_up(runs.request(epochs, {"train.steps=0", "train.max_epochs=" + epochs,
                                        "schedule.warmup_steps=7"}))
        ->warnings;
  };
  EXPECT_THAT(warnings("1"), testing::ElementsAre(testing::AllOf(HasSubstr("schedule.warmup_steps"),
                                                                 HasSubstr("update 6"))));
  EXPECT_THAT(warnings("2"), testing::IsEmpty());
}

TEST(Resume, CheckpointsThatWereSavedAmidSkippedUpdatesArePassedOver) {
  const SmallRun runs;
  (void)runs.train("whole", {"train.steps=8"});
  (void)runs.train("run");
  mark_as_amid_skips(runs.checkpoint("run", 6));
  {
    const auto run = set_up(runs.request("run", {"train.steps=8"}));
    EXPECT_EQ(run->state.step, 4);
    EXPECT_THAT(run->warnings, testing::ElementsAre(HasSubstr("step 6 was saved after skipped")));
    EXPECT_THAT(run->damaged, testing::IsEmpty());
  }
  EXPECT_EQ(runs.train("run", {"train.steps=8"}), ExitStatus::done);
  expect_same_weights(runs, "whole", "run", 8);
}

TEST(Resume, WhereAllWereSavedAmidSkippedUpdatesTheNewestIsTakenAndCountedAnew) {
  const SmallRun runs;
  (void)runs.train("run", {"checkpoint.every=3"});
  mark_as_amid_skips(runs.checkpoint("run", 3));
  mark_as_amid_skips(runs.checkpoint("run", 6));
  const auto run = set_up(runs.request("run", {"train.steps=8"}));
  EXPECT_EQ(run->state.step, 6);
  EXPECT_EQ(run->state.consecutive_skips, 0);
  EXPECT_THAT(run->warnings, testing::ElementsAre(HasSubstr("and so were all before it")));
}

TEST(Resume, OnAnotherValidationTextTheBestAndPatienceStartAnew) {
  const SmallRun runs;
  runs.write("other.txt", small_text(90, 3));
  const Sets sets{"validation.patience=1", "optimizer.lr=0", "schedule.warmup_init_lr=0"};
  (void)runs.train("run", with(sets, valid_set(runs, "valid.txt")));  // patience ends it at step 4
  ASSERT_TRUE(runs.has_checkpoint("run", 4));
  EXPECT_TRUE(set_up(runs.request("run", with(sets, valid_set(runs, "valid.txt"))))->already_ended);
  const auto run = set_up(runs.request("run", with(sets, valid_set(runs, "other.txt"))));
  EXPECT_FALSE(run->already_ended);
  EXPECT_EQ(run->state.best_step, -1);
  EXPECT_EQ(run->state.validations_without_gain, 0);
  ASSERT_EQ(run->notes.size(), 1U);
  EXPECT_EQ(run->notes[0].name, "validation_changed");
  EXPECT_THAT(run->notes[0].message,
              testing::AllOf(HasSubstr("data.valid holds another text"), HasSubstr("of step 2 ")));
  Recorded recorded;
  EXPECT_EQ(run_loop(*run, recorded), ExitStatus::done);
  EXPECT_EQ(recorded.valid.front().step, 4);  // with the new text, too
  EXPECT_TRUE(recorded.valid.front().best);
}

TEST(Resume, AnotherContextWindowOfValidationStartsAnewToo) {
  const SmallRun runs;
  const std::string valid = valid_set(runs, "valid.txt");
  (void)runs.train("run", {valid});
  const auto run =
      set_up(runs.request("run", {valid, "train.steps=8", "validation.context_window=4"}));
  EXPECT_EQ(run->state.best_step, -1);
  ASSERT_EQ(run->notes.size(), 1U);
  EXPECT_THAT(run->notes[0].message, HasSubstr("validation.context_window was 0 and is 4"));
  (void)begin_writing(*run);
  EXPECT_THAT(read_file(runs.path() / "run" / "metrics.jsonl"), HasSubstr("validation_changed"));
}

TEST(Resume, AnotherPartOfTheValidationTextStartsAnewToo) {
  const SmallRun runs;
  const std::string valid = valid_set(runs, "valid.txt");  // 90 tokens, windows of 16
  (void)runs.train("run", {valid});
  const auto notes_of = [&](const std::string& name, const std::string& set) {
    return set_up(runs.request(name, {valid, "train.steps=8", set}))->notes;
  };
  const auto fewer = notes_of("run", "validation.max_tokens=40");
  ASSERT_EQ(fewer.size(), 1U);
  EXPECT_THAT(fewer[0].message, HasSubstr("took all tokens and takes the first 32"));
  EXPECT_THAT(notes_of("run", "validation.max_tokens=90"), testing::IsEmpty());
  EXPECT_GT(set_up(runs.request("run", {valid, "validation.max_tokens=90"}))->state.best_step, 0);

  (void)runs.train("part", {valid, "validation.max_tokens=40"});
  EXPECT_THAT(notes_of("part", "validation.max_tokens=47"), testing::IsEmpty());  // as many windows
  const auto more = notes_of("part", "validation.max_tokens=48");
  ASSERT_EQ(more.size(), 1U);
  EXPECT_THAT(more[0].message, HasSubstr("took the first 32 and takes the first 48"));
  const auto run = set_up(runs.request("part", {valid, "validation.max_tokens=0"}));
  EXPECT_EQ(run->state.best_step, -1);
}

TEST(Resume, TheSameValidationTextElsewhereOrOfAnUnknownRunCountsOn) {
  const SmallRun runs;
  const std::string valid = valid_set(runs, "valid.txt");
  (void)runs.train("run", {valid});
  fs::copy_file(runs.path() / "valid.txt", runs.path() / "moved.txt");
  const auto best_of = [&] {
    const auto run = set_up(runs.request("run", {valid_set(runs, "moved.txt"), "train.steps=8"}));
    EXPECT_THAT(run->notes, testing::IsEmpty());
    EXPECT_NE(run->state.valid_data_digest, "");
    return run->state.best_step;
  };
  EXPECT_GT(best_of(), 0);
  edit(runs.checkpoint("run", 6), "state.json", [](std::string& state) {
    const std::size_t begin = state.find("  \"valid_data_digest\"");
    state.erase(begin, state.find('\n', begin) + 1 - begin);
    const std::size_t window = state.find("  \"validation_context_window\"");
    state.erase(window, state.find('\n', window) + 1 - window);
  });
  EXPECT_GT(best_of(), 0);
}

TEST(Resume, WarnsOfALearningRateThatJumpsWithBothRatesAndTheKeys) {
  const SmallRun runs;
  (void)runs.train("run", {"schedule.name=linear"});
  const auto warnings_with = [&runs](const Sets& sets) {
    return set_up(runs.request("run", sets))->warnings;
  };
  EXPECT_THAT(warnings_with({"schedule.name=linear", "train.steps=8"}),
              testing::ElementsAre(testing::AllOf(HasSubstr("at step 6: 0 when it was saved"),
                                                  HasSubstr("0.005 now (changed: train.steps)"),
                                                  HasSubstr("which was update 6 and is 8 now"))));
  EXPECT_THAT(warnings_with({"schedule.name=linear", "train.steps=8", "schedule.min_lr=0.001"}),
              testing::Contains(HasSubstr("(changed: schedule.min_lr, train.steps)")));
  EXPECT_THAT(warnings_with({"schedule.name=linear"}), testing::IsEmpty());
  (void)runs.train("constant", {"schedule.name=constant"});
  EXPECT_THAT(
      set_up(runs.request("constant", {"schedule.name=constant", "train.steps=8"}))->warnings,
      testing::IsEmpty());
}

// In its warm-up the next rate is the same.
TEST(Resume, WarnsOfAnEndThatMovesWhereTheScheduleFallsTowardsIt) {
  const SmallRun runs;
  for (const std::string name : {"cosine", "wsd", "polynomial"}) {
    const Sets sets{"schedule.name=" + name, "schedule.warmup_steps=20", "train.steps=40",
                    "train.max_hours=1e-9"};
    ASSERT_EQ(runs.train(name, sets), ExitStatus::done);
    EXPECT_THAT(set_up(runs.request(name, with(sets, "train.steps=50")))->warnings,
                testing::ElementsAre(testing::AllOf(
                    HasSubstr("schedule.name \"" + name + "\" falls towards the end"),
                    HasSubstr("which was update 40 and is 50 now"))));
    EXPECT_THAT(set_up(runs.request(name, sets))->warnings, testing::IsEmpty());
  }
}

TEST(Resume, TellsWhatWasSetOtherwiseAtTheLastStartAndWhere) {
  const SmallRun runs;
  (void)runs.train("run", {"log.every=3", "optimizer.lr=0.02"});
  const auto run = set_up(runs.request("run", {"train.steps=8", "run_name=other"}));
  EXPECT_THAT(run->changes, testing::ElementsAre("train.steps: 6 -> 8 (--set)",
                                                 "log.every: 3 -> 1 (small.json)"));
  EXPECT_THAT(run->warnings, testing::Contains("optimizer.lr: 0.02 -> 0.01 (small.json)"));
}

// Its settings stand in config.json only.
TEST(Resume, TellsWhatWasSetOtherwiseAtAStartThatSavedNothing) {
  const SmallRun runs;
  (void)runs.train("run");
  (void)begin_writing(*set_up(runs.request("run", {"train.steps=9", "optimizer.lr=0.02"})));
  log::close_file();
  EXPECT_THAT(set_up(runs.request("run", {"train.steps=9"}))->changes,
              testing::ElementsAre("train.steps: 6 -> 9 (--set)",
                                   "optimizer.lr: 0.02 -> 0.01 (small.json)"));
}

TEST(Resume, ADamagedConfigBesideCheckpointsIsSetAsideAndAMissingOneIsMade) {
  const SmallRun runs;
  (void)runs.train("run");
  const fs::path config = runs.path() / "run" / "config.json";
  write_file(config, "{\"run_name\": ");
  (void)runs.train("run", {"train.steps=7"});
  EXPECT_EQ(read_file(runs.path() / "run" / ".damaged-config.json"), "{\"run_name\": ");
  EXPECT_THAT(read_file(runs.path() / "run" / "train.log"), HasSubstr("is set aside as .damaged-"));
  EXPECT_THAT(read_file(config), HasSubstr("\"steps\": 7"));
  fs::remove(config);
  EXPECT_EQ(runs.train("run", {"train.steps=8"}), ExitStatus::done);
  EXPECT_THAT(read_file(config), HasSubstr("\"steps\": 8"));
}

TEST(Resume, TheKernelsInstructionSetIsPartOfTheBuild) {
  const SmallRun runs;
  (void)runs.train("run");
  EXPECT_THAT(runs.file_of("run", 6, "state.json"), HasSubstr(", kernels "));
  edit(runs.checkpoint("run", 6), "state.json",
       [](std::string& state) { replace(state, ", kernels ", ", kernels not "); });
  EXPECT_THAT(set_up(runs.request("run", {"train.steps=8"}))->warnings,
              testing::ElementsAre(HasSubstr(", kernels not ")));
}

TEST(Resume, WhatIsAdvisedWhereItIsRefusedFitsHowItWasAskedFor) {
  const SmallRun runs;
  (void)runs.train("run");
  const Sets changed{"train.steps=8", "model.dropout=0.2"};
  EXPECT_THAT(
      fault_of(runs, "run", changed),
      testing::AllOf(HasSubstr("undo that or choose another --run-dir to train anew (with its "
                               "weights: --init-from "),
                     HasSubstr("run/checkpoints/step-00000006)")));
  const auto refused_from = [&](const std::string& name) {
    TrainRequest request = runs.request(name, changed);
    request.resume = ResumeMode::checkpoint;
    request.resume_from = runs.checkpoint("run", 4);
    try {
      (void)set_up(request);
    } catch (const UserError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(refused_from("run"),
              HasSubstr("undo that or leave --resume out and choose another --run-dir"));
  EXPECT_THAT(refused_from("fork"), HasSubstr("undo that or leave --resume out to train anew"));
}

TEST(Resume, ACheckpointOfANewerProgramIsRefusedAndStays) {
  const SmallRun runs;
  (void)runs.train("newer");
  const fs::path manifest = runs.checkpoint("newer", 6) / "manifest.json";
  std::string json = read_file(manifest);
  const std::string format = "\"format\": 1";
  json.replace(json.find(format), format.size(), "\"format\": 2");
  write_file(manifest, json);
  EXPECT_THAT(fault_of(runs, "newer", {"train.steps=8"}), HasSubstr("format 2 is newer"));
  EXPECT_EQ(read_file(manifest), json);
}

TEST(Resume, CutsMetricsAndCheckpointsAfterTheStepItGoesOnFrom) {
  const SmallRun runs;
  (void)runs.train("run");
  TrainRequest request = runs.request("run", {"train.steps=4"});
  request.resume = ResumeMode::checkpoint;
  request.resume_from = runs.checkpoint("run", 2);
  const auto run = set_up(request);
  EXPECT_TRUE(runs.has_checkpoint("run", 6));  // until the run begins to write
  (void)begin_writing(*run);
  EXPECT_TRUE(runs.has_checkpoint("run", 2));
  EXPECT_FALSE(runs.has_checkpoint("run", 4));
  const std::string metrics = read_file(runs.path() / "run" / "metrics.jsonl");
  EXPECT_THAT(metrics, HasSubstr("\"step\":2"));
  EXPECT_THAT(metrics, testing::Not(HasSubstr("\"step\":3")));
  EXPECT_THAT(metrics, HasSubstr("metrics_cut"));
}

TEST(Resume, MayChangeSilentlyWhatDoesNotTouchTheResult) {
  const SmallRun runs;
  (void)runs.train("run");
  const auto run = set_up(
      runs.request("run", {"train.steps=9", "log.every=7", "run_name=other", "checkpoint.every=5",
                           "validation.every=3", "train.nonfinite=stop"}));
  EXPECT_TRUE(run->resumed);
  EXPECT_THAT(run->warnings, testing::ElementsAre(HasSubstr("validation.every: never acts")));
}

TEST(Resume, WarnsOfWhatChangesTheResult) {
  const SmallRun runs;
  (void)runs.train("run");
  const auto run =
      set_up(runs.request("run", {"train.steps=9", "optimizer.lr=0.5", "schedule.name=constant",
                                  "train.threads=2", "train.micro_batch_size=1"}));
  for (const char* key :
       {"optimizer.lr", "schedule.name", "train.threads", "threads: 1", "train.micro_batch_size"}) {
    EXPECT_THAT(run->warnings, testing::Contains(HasSubstr(key)));
  }
}

TEST(Resume, RefusesEveryOtherChangeByName) {
  const SmallRun runs;
  (void)runs.train("run");
  const std::string fault = fault_of(runs, "run",
                                     {"model.dropout=0.2", "train.seed=5",
                                      "train.global_batch_size=3", "data.tokens_per_sample=15"});
  for (const char* key :
       {"model.dropout", "train.seed", "train.global_batch_size", "data.tokens_per_sample"}) {
    EXPECT_THAT(fault, HasSubstr(key));
  }
}

TEST(Resume, TheTextMayMoveButNotChange) {
  const SmallRun runs;
  (void)runs.train("run");
  fs::copy_file(runs.path() / "train.txt", runs.path() / "moved.txt");
  const Sets moved{"train.steps=9", "data.train=" + (runs.path() / "moved.txt").string()};
  EXPECT_THAT(set_up(runs.request("run", moved))->warnings, testing::IsEmpty());
  runs.write("moved.txt", small_text(23 * 16 - 5, 99));
  EXPECT_THAT(fault_of(runs, "run", moved), HasSubstr("data.train"));
}

TEST(Resume, TheTokenizerMayMoveButNotChange) {
  const SmallRun runs;
  (void)runs.train("run");
  const fs::path dictionary = runs.path() / "dictionary.txt";
  const Sets moved{"train.steps=9", "tokenizer.path=" + dictionary.string()};
  fs::copy_file(runs.checkpoint("run", 6) / "tokenizer.txt", dictionary);
  EXPECT_TRUE(set_up(runs.request("run", moved))->resumed);
  std::ofstream(dictionary, std::ios::app) << "word 1\n";
  EXPECT_THAT(fault_of(runs, "run", moved), HasSubstr("tokenizer.path"));
}

TEST(Resume, NeverRefusesADirectoryThatHoldsARun) {
  const SmallRun runs;
  TrainRequest request = runs.request("run");
  request.resume = ResumeMode::never;
  EXPECT_EQ(train(request), ExitStatus::done);
  EXPECT_THROW((void)train(request), UserError);
}

TEST(Resume, ACheckpointOfAnotherRunStartsAFreshDirectoryOnly) {
  const SmallRun runs;
  (void)runs.train("one", {"train.steps=8"});
  (void)runs.train("two");
  TrainRequest request = runs.request("fresh", {"train.steps=8"});
  request.resume = ResumeMode::checkpoint;
  request.resume_from = runs.checkpoint("one", 4);
  EXPECT_EQ(train(request), ExitStatus::done);
  EXPECT_TRUE(runs.has_checkpoint("fresh", 4));  // its own from the start
  expect_same_weights(runs, "one", "fresh", 8);
  request.run_dir = runs.path() / "two";
  EXPECT_THROW((void)train(request), UserError);
  EXPECT_TRUE(runs.has_checkpoint("two", 6));
}

TEST(Resume, ALockedDirectoryIsRefused) {
  const SmallRun runs;
  const auto run = set_up(runs.request("run"));
  EXPECT_THROW((void)set_up(runs.request("run")), UserError);
}

// By a path that the second start finds missing, as it does where both start at the same moment,
// and that leads to the first one's directory when it is made.
TEST(Resume, AStartRefusedForTheLockLeavesTheOthersFreshDirectory) {
  const SmallRun runs;
  const auto run = set_up(runs.request("run"));
  TrainRequest second = runs.request("run");
  second.run_dir = runs.path() / "not yet" / ".." / "run";
  ASSERT_FALSE(fs::exists(second.run_dir));
  EXPECT_THROW((void)set_up(second), UserError);
  EXPECT_FALSE(fs::exists(runs.path() / "not yet"));
  EXPECT_TRUE(fs::exists(runs.path() / "run" / ".lock"));
}

}  // namespace
}  // namespace transnormer
