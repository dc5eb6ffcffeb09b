// The loop around the updates: events, validation, early stopping, what is skipped, failed saves.
#include "train/training_loop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <limits>
#include <new>

#include "train/begin_writing.h"
#include "train/small_run.h"
#include "util/error.h"
#include "util/file.h"
#include "util/signal.h"

namespace transnormer {
namespace {

namespace fs = std::filesystem;
using testing::Contains;
using testing::HasSubstr;

std::string valid_set(const SmallRun& runs) {
  return "data.valid=" + (runs.path() / "valid.txt").string();
}

std::vector<at::Tensor> copies_of_weights(const TrainingRun& run) {
  std::vector<at::Tensor> copies;
  for (const NamedTensor& parameter : named_tensors(*run.model)) {
    copies.push_back(parameter.tensor.detach().clone());
  }
  return copies;
}

bool are_equal(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const at::Tensor& x, const at::Tensor& y) { return at::equal(x, y); });
}

TEST(TrainingLoop, TheLossFalls) {
  const SmallRun runs;
  const auto run = set_up(runs.request("run", {"train.steps=60", "checkpoint.every=0"}));
  Recorded recorded;
  EXPECT_EQ(run_loop(*run, recorded), ExitStatus::done);
  ASSERT_EQ(recorded.train.size(), 60U);
  EXPECT_LT(recorded.train.back().loss, recorded.train.front().loss - 0.5);
}

TEST(TrainingLoop, ReportsEachUpdateInItsOwnTerms) {
  const SmallRun runs;
  const auto run = set_up(runs.request("run"));
  Recorded recorded;
  (void)run_loop(*run, recorded);
  ASSERT_EQ(recorded.train.size(), 6U);
  const log::TrainEvent& last = recorded.train.back();
  EXPECT_EQ(last.step, 6);
  EXPECT_NEAR(last.epoch, 24.0 / 23, 1e-12);
  // Every sample has 16 targets but the last, which has 11 and comes once; the 24th begins anew.
  EXPECT_GE(last.tokens, 24 * 16 - 2 * 5);
  EXPECT_LE(last.tokens, 24 * 16 - 5);
  EXPECT_DOUBLE_EQ(recorded.train[4].lr, 0.01);  // the peak, at the end of the warm-up
  EXPECT_GT(last.grad_norm, 0);
  EXPECT_NEAR(last.gradients.at("all").norm, last.grad_norm, 1e-9);
  EXPECT_GT(last.gradients.at("layers.1.q_proj").relative_std, 0);
  EXPECT_GT(last.memory_bytes, 0);
  EXPECT_FALSE(last.loss_scale);
}

TEST(TrainingLoop, LossIsTheMeanSinceTheLastEvent) {
  const SmallRun runs;
  Recorded each;
  Recorded third;
  const auto first = set_up(runs.request("first"));
  (void)run_loop(*first, each);
  const auto second = set_up(runs.request("second", {"log.every=3", "log.grad_stats_every=0"}));
  (void)run_loop(*second, third);
  ASSERT_EQ(third.train.size(), 2U);
  double sum = 0;
  std::int64_t tokens = 0;
  for (int i = 3; i < 6; ++i) {
    const std::int64_t seen = each.train[i].tokens - each.train[i - 1].tokens;
    sum += each.train[i].loss * static_cast<double>(seen);
    tokens += seen;
  }
  EXPECT_NEAR(third.train[1].loss, sum / static_cast<double>(tokens), 1e-9);
  EXPECT_THAT(third.train[1].gradients, testing::IsEmpty());
}

TEST(TrainingLoop, LossIsTheMeanSinceTheLastEventThatOnlyTheFilesKeepToo) {
  const SmallRun runs;
  Recorded each;
  Recorded both;
  const auto first = set_up(runs.request("first"));
  (void)run_loop(*first, each);
  const auto second = set_up(runs.request("second", {"log.every=3", "log.grad_stats_every=2"}));
  (void)run_loop(*second, both);
  ASSERT_EQ(both.train.size(), 4U);  // of steps 2, 3, 4 and 6
  EXPECT_EQ(both.train[1].step, 3);
  EXPECT_NEAR(both.train[1].loss, each.train[2].loss, 1e-9);
  EXPECT_EQ(both.train[2].step, 4);
  EXPECT_NEAR(both.train[2].loss, each.train[3].loss, 1e-9);
}

TEST(TrainingLoop, StatisticsRunOverTheSameIterationsAcrossAResume) {
  const SmallRun runs;
  Recorded whole;
  const auto continuous = set_up(runs.request("whole", {"log.grad_stats_every=2"}));
  (void)run_loop(*continuous, whole);
  (void)runs.train("parts", {"log.grad_stats_every=2", "train.steps=3"});
  Recorded rest;
  const auto resumed = set_up(runs.request("parts", {"log.grad_stats_every=2"}));
  (void)run_loop(*resumed, rest);
  EXPECT_EQ(rest.train.back().step, 6);
  EXPECT_EQ(continuous->state.gradient_moments, resumed->state.gradient_moments);
  EXPECT_EQ(resumed->state.gradient_moments.at("all").count, 3);
}

TEST(TrainingLoop, StatisticsAreOfTheGradientsBeforeClipping) {
  const SmallRun runs;
  const auto run = set_up(runs.request("run", {"optimizer.clip_norm=0.001"}));
  Recorded recorded;
  (void)run_loop(*run, recorded);
  EXPECT_GT(recorded.train.front().grad_norm, 0.1);
  EXPECT_GT(recorded.train.front().gradients.at("all").norm, 0.1);
}

TEST(TrainingLoop, HistogramsComeWhenTheyAreDue) {
  const SmallRun runs;
  const auto run = set_up(runs.request("run", {"log.grad_histograms_every=3"}));
  Recorded recorded;
  (void)run_loop(*run, recorded);
  EXPECT_TRUE(recorded.train[1].histograms.empty());
  EXPECT_TRUE(recorded.train[2].histograms.contains("layers.0.ffn"));
}

TEST(TrainingLoop, ANonFiniteUpdateIsSkippedAndTrainingGoesOn) {
  const SmallRun runs;
  const auto run = set_up(runs.request("run", {"checkpoint.every=0"}));
  poison_gradients(*run, 2, 3);
  std::vector<at::Tensor> weights_at_skip;
  Recorded recorded;
  recorded.on_note = [&](const log::NoteEvent& note) {
    if (note.name == "update_skipped") {
      EXPECT_EQ(note.step, 3);
      weights_at_skip = copies_of_weights(*run);
    }
  };
  const std::vector<at::Tensor> before = copies_of_weights(*run);
  EXPECT_EQ(run_loop(*run, recorded), ExitStatus::done);
  ASSERT_FALSE(weights_at_skip.empty());
  EXPECT_EQ(run->state.skipped_updates, 1);
  EXPECT_EQ(run->state.step, 6);
  EXPECT_EQ(run->optimizer->updates(), 5);
  for (const NamedTensor& parameter : named_tensors(*run->model)) {
    EXPECT_TRUE(at::isfinite(parameter.tensor).all().item<bool>()) << parameter.name;
  }
  EXPECT_FALSE(are_equal(before, copies_of_weights(*run)));
}

TEST(TrainingLoop, ASkippedUpdateLeavesTheWeightsAsTheyWere) {
  const SmallRun runs;
  const auto run = set_up(runs.request("run", {"train.steps=3"}));
  poison_gradients(*run, 0, 2);
  const std::vector<at::Tensor> before = copies_of_weights(*run);
  std::vector<at::Tensor> weights_at_skip;
  Recorded recorded;
  recorded.on_note = [&](const log::NoteEvent& note) {
    if (note.name == "update_skipped") {
      weights_at_skip = copies_of_weights(*run);
    }
  };
  EXPECT_EQ(run_loop(*run, recorded), ExitStatus::done);
  EXPECT_EQ(run->state.skipped_updates, 2);
  EXPECT_TRUE(are_equal(before, weights_at_skip));
}

std::string divergence_of(TrainingRun& run, Recorded& recorded) {
  try {
    (void)run_loop(run, recorded);
  } catch (const DivergedError& error) {
    return error.what();
  }
  return "it did not diverge";
}

TEST(TrainingLoop, AmidSkippedUpdatesNothingIsSavedAndItIsMadeUpForAfterwards) {
  const SmallRun runs;
  const auto run =
      set_up(runs.request("run", {valid_set(runs), "train.steps=7", "validation.every=4"}));
  poison_gradients(*run, 3, 4);
  Recorded recorded;
  EXPECT_EQ(run_loop(*run, recorded), ExitStatus::done);
  EXPECT_THAT(recorded.names(), Contains("save_postponed"));
  EXPECT_TRUE(runs.has_checkpoint("run", 2));
  EXPECT_FALSE(runs.has_checkpoint("run", 4));
  EXPECT_TRUE(runs.has_checkpoint("run", 5));
  EXPECT_EQ(recorded.valid.front().step, 5);
}

TEST(TrainingLoop, ASaveThatIsAskedForAmidSkippedUpdatesWaitsForASoundState) {
  install_signal_handlers();
  const SmallRun runs;
  const auto run = set_up(runs.request("run", {"checkpoint.every=0"}));
  poison_gradients(*run, 1, 3);
  Recorded recorded;
  recorded.on_note = [&](const log::NoteEvent& note) {
    if (note.name == "update_skipped" && note.step == 2) {
      std::raise(SIGUSR1);
    }
  };
  EXPECT_EQ(run_loop(*run, recorded), ExitStatus::done);
  EXPECT_THAT(recorded.names(), testing::ElementsAre("update_skipped", "save_postponed",
                                                     "update_skipped", "saved", "saved", "done"));
  EXPECT_FALSE(runs.has_checkpoint("run", 2));
  EXPECT_TRUE(runs.has_checkpoint("run", 4));
}

TEST(TrainingLoop, ARunThatEndsAmidSkippedUpdatesHasDivergedAndGoesOnFromTheLastSoundState) {
  const SmallRun runs;
  {
    const auto run = set_up(runs.request("run", {"checkpoint.keep_last=2"}));
    poison_gradients(*run, 5, 100);
    Recorded recorded;
    EXPECT_THAT(divergence_of(*run, recorded),
                testing::AllOf(HasSubstr("at step 6: training ends here, and the last update was "
                                         "skipped; the last sound checkpoint is "),
                               HasSubstr("step-00000004; "), HasSubstr("optimizer.lr")));
    EXPECT_FALSE(runs.has_checkpoint("run", 6));
  }
  const auto resumed = set_up(runs.request("run"));
  EXPECT_EQ(resumed->state.step, 4);
  EXPECT_FALSE(resumed->already_ended);
  Recorded recorded;
  EXPECT_EQ(run_loop(*resumed, recorded), ExitStatus::done);
}

TEST(TrainingLoop, WeightsThatAreNotFiniteAreNotSaved) {
  const SmallRun runs;
  const auto run =
      set_up(runs.request("run", {"train.precision=fp16", "checkpoint.every=1", "train.steps=5"}));
  poison_gradients(*run, 2, 3);
  Recorded recorded;
  recorded.on_note = [&](const log::NoteEvent& note) {
    if (note.name == "loss_scale_lowered" && note.step == 3) {  // no skip that counts
      const at::NoGradGuard no_grad;
      named_tensors(*run->model).front().tensor[0].fill_(std::numeric_limits<float>::infinity());
    }
  };
  EXPECT_THAT(divergence_of(*run, recorded), HasSubstr("step-00000001; "));
  EXPECT_TRUE(runs.has_checkpoint("run", 2));
  EXPECT_FALSE(runs.has_checkpoint("run", 3));
  EXPECT_THAT(recorded.notes,
              Contains(testing::Field(&log::NoteEvent::message,
                                      HasSubstr("step 3: the weights are not finite"))));
}

TEST(TrainingLoop, ALossFarAboveGuessingEndsTrainingAndNamesTheCheckpointFromBefore) {
  const SmallRun runs;
  ASSERT_EQ(runs.train("run", {"train.steps=50", "checkpoint.every=50"}), ExitStatus::done);
  const auto run = set_up(runs.request("run", {"train.steps=400", "optimizer.lr=100",
                                               "schedule.name=constant", "checkpoint.every=5"}));
  Recorded recorded;
  EXPECT_THAT(
      divergence_of(*run, recorded),
      testing::AllOf(HasSubstr("the mean loss of 50 updates is"), HasSubstr("step-00000050; ")));
  EXPECT_THAT(recorded.names(), Contains("diverged"));
  EXPECT_TRUE(runs.has_checkpoint("run", 50));
  EXPECT_GT(run->directory.checkpoint_steps().size(), 2U);  // later ones were saved beside it
}

// A hook stands for whatever an update reads that can no longer be read.
TEST(TrainingLoop, AFaultOfTheUsersOnTheWayIsThrownOnAfterSaving) {
  const SmallRun runs;
  const auto run = set_up(runs.request("run", {"checkpoint.every=0"}));
  run->optimizer->parameters()[1].tensor.register_hook([&run](const at::Tensor&) {
    if (run->state.step == 3) {
      throw UserError("the tokens can no longer be read");
    }
  });
  Recorded recorded;
  EXPECT_THROW((void)run_loop(*run, recorded), UserError);
  EXPECT_TRUE(runs.has_checkpoint("run", 3));
  EXPECT_THAT(recorded.notes.back().message, HasSubstr("the same command goes on from here"));
}

TEST(TrainingLoop, WhereMemoryEndsInAnUpdateTheStateBeforeItIsSaved) {
  const SmallRun runs;
  const auto run = set_up(runs.request("run", {"checkpoint.every=0"}));
  run->optimizer->parameters()[1].tensor.register_hook([&run](const at::Tensor&) {
    if (run->state.step == 3) {
      throw std::bad_alloc();
    }
  });
  Recorded recorded;
  EXPECT_THROW((void)run_loop(*run, recorded), std::bad_alloc);
  EXPECT_TRUE(runs.has_checkpoint("run", 3));
}

TEST(TrainingLoop, ARunWhoseDirectoryWasMovedWhileItWasPreparedDoesNotBegin) {
  const SmallRun runs;
  ASSERT_EQ(runs.train("run"), ExitStatus::done);
  const auto run = set_up(runs.request("run", {"train.steps=8"}));
  fs::rename(runs.path() / "run", runs.path() / "moved");
  ASSERT_EQ(runs.train("run"), ExitStatus::done);
  const std::string metrics = read_file(runs.path() / "run/metrics.jsonl");
  EXPECT_THROW((void)begin_writing(*run), WriteError);
  EXPECT_EQ(read_file(runs.path() / "run/metrics.jsonl"), metrics);
}

TEST(TrainingLoop, TheLastStepIsReportedWhateverLogEverySays) {
  const SmallRun runs;
  const auto steps_of = [&runs](const std::string& every) {
    const auto run =
        set_up(runs.request("run" + every, {"log.every=" + every, "log.grad_stats_every=0"}));
    Recorded recorded;
    EXPECT_EQ(run_loop(*run, recorded), ExitStatus::done);
    std::vector<std::int64_t> steps;
    for (const log::TrainEvent& event : recorded.train) {
      steps.push_back(event.step);
    }
    return steps;
  };
  EXPECT_THAT(steps_of("4"), testing::ElementsAre(4, 6));
  EXPECT_THAT(steps_of("100"), testing::ElementsAre(6));
  EXPECT_THAT(steps_of("0"), testing::IsEmpty());
}

TEST(TrainingLoop, TheLastStepBeforePatienceEndsIsReportedToo) {
  const SmallRun runs;
  const auto run = set_up(runs.request(
      "run", {valid_set(runs), "validation.every=1", "validation.patience=2", "optimizer.lr=0",
              "schedule.warmup_init_lr=0", "log.every=50", "log.grad_stats_every=0"}));
  Recorded recorded;
  EXPECT_EQ(run_loop(*run, recorded), ExitStatus::done);
  EXPECT_EQ(run->state.step, 3);
  EXPECT_EQ(recorded.train.back().step, 3);
}

TEST(TrainingLoop, AnEventOfALastStepLeavesTheLossOfThoseAfterAResumeAsItWas) {
  const SmallRun runs;
  const std::vector<std::string> sets{"log.every=4", "log.grad_stats_every=0"};
  const auto loss_of_step_4 = [&](const std::string& name, const std::string& steps) {
    std::vector<std::string> all = sets;
    all.push_back("train.steps=" + steps);
    const auto run = set_up(runs.request(name, all));
    Recorded recorded;
    EXPECT_EQ(run_loop(*run, recorded), ExitStatus::done);
    return recorded.train.front().loss;
  };
  const double whole = loss_of_step_4("whole", "4");
  EXPECT_NE(loss_of_step_4("parts", "2"), whole);
  EXPECT_EQ(loss_of_step_4("parts", "4"), whole);
}

TEST(TrainingLoop, TooManySkipsInARowDivergeAndLeaveTheCheckpoints) {
  const SmallRun runs;
  const auto run = set_up(
      runs.request("run", {"train.steps=100", "checkpoint.every=2", "train.nonfinite_limit=3"}));
  poison_gradients(*run, 2, 100);
  Recorded recorded;
  EXPECT_THROW((void)run_loop(*run, recorded), DivergedError);
  EXPECT_THAT(recorded.names(), Contains("diverged"));
  EXPECT_TRUE(runs.has_checkpoint("run", 2));
  EXPECT_EQ(run->state.step, 4);  // the fifth update is the third one skipped
}

TEST(TrainingLoop, ThePolicyStopDivergesAtTheFirst) {
  const SmallRun runs;
  const auto run = set_up(runs.request("run", {"train.nonfinite=stop"}));
  poison_gradients(*run, 3, 100);
  Recorded recorded;
  EXPECT_THROW((void)run_loop(*run, recorded), DivergedError);
  EXPECT_EQ(run->state.step, 3);
}

TEST(TrainingLoop, AnOverflowInHalfPrecisionLowersTheScaleAndIsReported) {
  const SmallRun runs;
  const auto run = set_up(runs.request("run", {"train.precision=fp16", "train.nonfinite=stop"}));
  poison_gradients(*run, 1, 2);
  Recorded recorded;
  EXPECT_EQ(run_loop(*run, recorded), ExitStatus::done);
  EXPECT_THAT(recorded.names(), Contains("loss_scale_lowered"));
  EXPECT_EQ(recorded.train.back().loss_scale.value(), 32768);
}

TEST(TrainingLoop, ValidatesWhenDueAndAtTheEndAndMarksTheBest) {
  const SmallRun runs;
  const auto run =
      set_up(runs.request("run", {valid_set(runs), "validation.every=4", "train.steps=6"}));
  Recorded recorded;
  (void)run_loop(*run, recorded);
  ASSERT_EQ(recorded.valid.size(), 2U);
  EXPECT_EQ(recorded.valid[0].step, 4);
  EXPECT_TRUE(recorded.valid[0].best);
  EXPECT_EQ(recorded.valid[1].step, 6);
  EXPECT_EQ(fs::read_symlink(runs.path() / "run/checkpoints/best"),
            runs.checkpoint("run", run->state.best_step).filename());
}

TEST(TrainingLoop, NoValidationWhereItIsSwitchedOff) {
  const SmallRun runs;
  const auto run = set_up(runs.request("run", {valid_set(runs), "validation.every=0"}));
  Recorded recorded;
  (void)run_loop(*run, recorded);
  EXPECT_TRUE(recorded.valid.empty());
}

TEST(TrainingLoop, ABetterValidationIsSavedOutOfTurn) {
  const SmallRun runs;
  const auto run = set_up(runs.request(
      "run", {valid_set(runs), "validation.every=2", "checkpoint.every=0", "train.steps=3"}));
  Recorded recorded;
  (void)run_loop(*run, recorded);
  EXPECT_TRUE(runs.has_checkpoint("run", 2));
  EXPECT_TRUE(runs.has_checkpoint("run", 3));
}

TEST(TrainingLoop, PatienceStopsARunThatNoLongerGetsBetter) {
  const SmallRun runs;
  const std::vector<std::string> sets{
      valid_set(runs),  "validation.every=1",        "validation.patience=2",
      "optimizer.lr=0", "schedule.warmup_init_lr=0", "train.steps=50"};
  const auto run = set_up(runs.request("run", sets));
  Recorded recorded;
  EXPECT_EQ(run_loop(*run, recorded), ExitStatus::done);
  EXPECT_EQ(run->state.step, 3);
  EXPECT_TRUE(run->state.finished);
  EXPECT_THAT(recorded.notes.back().message, HasSubstr("validation.patience"));
}

TEST(TrainingLoop, AFailedSaveIsToldAndSurvivedAndShowsInTheStatus) {
  const SmallRun runs;
  const auto run = set_up(runs.request("run"));
  const fs::path checkpoints = runs.path() / "run" / "checkpoints";
  fs::remove_all(checkpoints);
  std::ofstream(checkpoints) << "in the way";
  Recorded recorded;
  recorded.on_note = [&](const log::NoteEvent& note) {
    if (note.name == "save_failed") {
      fs::remove(checkpoints);
    }
  };
  EXPECT_EQ(run_loop(*run, recorded), ExitStatus::save_failed);
  EXPECT_FALSE(runs.has_checkpoint("run", 2));
  EXPECT_TRUE(runs.has_checkpoint("run", 6));
}

TEST(TrainingLoop, ARecordThatIsLostShowsInTheStatus) {
  const SmallRun runs;
  const auto run = set_up(runs.request("run"));
  testing::internal::CaptureStderr();
  Events events = begin_writing(*run);
  const fs::path metrics = runs.path() / "run" / "metrics.jsonl";
  fs::remove(metrics);
  fs::create_directory(metrics);  // in the way
  EXPECT_EQ(TrainingLoop(*run, events).run(), ExitStatus::save_failed);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("metrics.jsonl: cannot be written"));
  EXPECT_TRUE(runs.has_checkpoint("run", 6));
}

TEST(TrainingLoop, WhateverASaveThrowsTrainingGoesOnToItsEnd) {
  const SmallRun runs;
  const auto run = set_up(runs.request("run"));
  run->state.device = "\xff";  // no UTF-8, so its JSON cannot be written: no WriteError
  Recorded recorded;
  EXPECT_EQ(run_loop(*run, recorded), ExitStatus::save_failed);
  EXPECT_EQ(run->state.step, 6);
  EXPECT_THAT(recorded.names(),
              testing::ElementsAre("save_failed", "save_failed", "save_failed", "done"));
  EXPECT_FALSE(runs.has_checkpoint("run", 6));
}

TEST(TrainingLoop, AFinishedRunSaysSoAndGoesOnWhereTheEndIsRaised) {
  const SmallRun runs;
  (void)runs.train("run");
  EXPECT_THAT(set_up(runs.request("run"))->already_ended.value(), HasSubstr("train.steps"));
  const std::string before = runs.file_of("run", 6, "state.json");
  EXPECT_EQ(runs.train("run"), ExitStatus::done);
  EXPECT_EQ(runs.file_of("run", 6, "state.json"), before);
  EXPECT_FALSE(set_up(runs.request("run", {"train.steps=8"}))->already_ended);
  EXPECT_EQ(runs.train("run", {"train.steps=8"}), ExitStatus::done);
  EXPECT_TRUE(runs.has_checkpoint("run", 8));
}

TEST(TrainingLoop, EndsByTheTimeAfterEachUpdateAndGoesOnWithTheSameBits) {
  const SmallRun runs;
  const std::vector<std::string> sets{valid_set(runs), "checkpoint.every=4"};
  ASSERT_EQ(runs.train("whole", sets), ExitStatus::done);
  std::vector<std::string> hurried = sets;
  hurried.emplace_back("train.max_hours=1e-9");
  for (std::int64_t step = 1; step <= 5; ++step) {
    const auto run = set_up(runs.request("run", hurried));
    Recorded recorded;
    ASSERT_EQ(run_loop(*run, recorded), ExitStatus::done);
    EXPECT_EQ(run->state.step, step);
    EXPECT_FALSE(run->state.finished);
    EXPECT_TRUE(runs.has_checkpoint("run", step));
    ASSERT_EQ(recorded.notes.back().name, "time_limit");
    EXPECT_THAT(recorded.notes.back().message,
                testing::AllOf(HasSubstr("train.max_hours"),
                               HasSubstr("; the same command goes on from here")));
    // What was due at the last step is made up for now.
    EXPECT_EQ(recorded.valid.size(), step == 3 || step == 5 ? 1U : 0U);
  }
  const auto last = set_up(runs.request("run", hurried));
  Recorded recorded;
  EXPECT_EQ(run_loop(*last, recorded), ExitStatus::done);
  EXPECT_EQ(recorded.notes.back().name, "done");  // at its end it ends by that
  EXPECT_TRUE(last->state.finished);
  expect_same_weights(runs, "whole", "run", 4);
  expect_same_state(runs, "whole", "run", 6);
}

TEST(TrainingLoop, EndsByTheTimeWithASoundStateOnly) {
  const SmallRun runs;
  const auto run = set_up(runs.request("run", {"train.max_hours=1e-9"}));
  poison_gradients(*run, 0, 2);
  Recorded recorded;
  EXPECT_EQ(run_loop(*run, recorded), ExitStatus::done);
  EXPECT_EQ(run->state.step, 3);
  EXPECT_TRUE(runs.has_checkpoint("run", 3));
  EXPECT_EQ(recorded.notes.back().name, "time_limit");
}

TEST(TrainingLoop, TheTimeIsThatOfTheWholeStart) {
  const SmallRun runs;
  const auto run = set_up(runs.request("run", {"train.max_hours=1"}));
  run->training_began = std::chrono::steady_clock::now() - std::chrono::hours(2);
  Recorded recorded;
  EXPECT_EQ(run_loop(*run, recorded), ExitStatus::done);  // as after a divergence
  EXPECT_EQ(run->state.step, 1);
}

TEST(TrainingLoop, AForkSavesAtOnceSoThatItGoesOnByItself) {
  const SmallRun runs;
  (void)runs.train("one", {"train.steps=3", "checkpoint.every=0"});
  TrainRequest request = runs.request("fork", {"checkpoint.every=0"});
  request.resume = ResumeMode::checkpoint;
  request.resume_from = runs.checkpoint("one", 3);
  Recorded recorded;
  EXPECT_EQ(run_loop(*set_up(request), recorded), ExitStatus::done);
  EXPECT_TRUE(runs.has_checkpoint("fork", 3));
}

}  // namespace
}  // namespace transnormer
