// Saving while training goes on: what is written, who waits, what is told when.
#include "train/saver.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <new>
#include <thread>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "train/small_run.h"
#include "util/child.h"
#include "util/error.h"

namespace transnormer {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;

// Holds the thread that writes at one stage of each save until it is let go.
class Gate {
 public:
  explicit Gate(SaveStage stage) : stage_(stage) {}
  void pass(SaveStage stage) const {
    if (stage == stage_) {
      opened_.wait();
    }
  }
  void open() { open_.set_value(); }

 private:
  SaveStage stage_;
  std::promise<void> open_;
  std::shared_future<void> opened_ = open_.get_future().share();
};

// What a sink saw, in its order.
class Sink : public log::EventSink {
 public:
  explicit Sink(std::vector<log::NoteEvent>& notes) : notes_(notes) {}
  void on(const log::TrainEvent&) override {}
  void on(const log::ValidEvent&) override {}
  void on(const log::NoteEvent& event) override { notes_.push_back(event); }
  void flush() override {
    ++flushes;
    if (disk_fails) {
      throw WriteError("metrics.jsonl: cannot be flushed");
    }
  }

  std::atomic<int> flushes = 0;
  std::atomic<bool> disk_fails = false;

 private:
  std::vector<log::NoteEvent>& notes_;
};

class SaverTest : public testing::Test {
 protected:
  explicit SaverTest(const std::vector<std::string>& sets = {})
      : run_(set_up(runs_.request("run", sets))) {
    run_->state.step = 1;
    run_->directory.keep();
  }

  Events make_events() {
    std::vector<std::unique_ptr<log::EventSink>> files;
    auto sink = std::make_unique<Sink>(notes_);
    sink_ = sink.get();
    files.push_back(std::move(sink));
    return {std::make_unique<Sink>(unread_), std::move(files)};
  }

  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const log::NoteEvent& note : notes_) {
      names.push_back(note.name + " " + std::to_string(note.step));
    }
    return names;
  }

  // Weights, optimizer and state go on.
  void train_on() {
    const at::NoGradGuard no_grad;
    for (const std::vector<NamedTensor>& tensors :
         {named_tensors(*run_->model), run_->optimizer->named_state()}) {
      for (const NamedTensor& named : tensors) {
        named.tensor.detach().add_(1);
      }
    }
    ++run_->state.step;
  }

  [[nodiscard]] double first_weight() const {
    return named_tensors(*run_->model).front().tensor.flatten()[0].item<double>();
  }
  [[nodiscard]] double saved_first_weight(std::int64_t step) const {
    const auto model = Checkpoint::open(runs_.checkpoint("run", step)).load_model(at::kCPU);
    return named_tensors(*model).front().tensor.flatten()[0].item<double>();
  }

  SmallRun runs_;
  std::unique_ptr<TrainingRun> run_;
  std::vector<log::NoteEvent> notes_;
  std::vector<log::NoteEvent> unread_;
  Sink* sink_ = nullptr;
  Events events_ = make_events();
};

TEST_F(SaverTest, WhatIsWrittenIsTheStateThatWasToBeSavedWhateverBecomesOfItMeanwhile) {
  Gate gate(SaveStage::begun);
  Saver saver(*run_, events_, [&gate](SaveStage stage) { gate.pass(stage); });
  const double saved = first_weight();
  saver.save();
  train_on();
  gate.open();
  EXPECT_TRUE(saver.wait());
  EXPECT_NE(first_weight(), saved);
  EXPECT_EQ(saved_first_weight(1), saved);
  EXPECT_FALSE(runs_.has_checkpoint("run", 2));
}

TEST_F(SaverTest, ASaveIsReportedOnceItIsDoneWithByItsOwnStep) {
  Gate gate(SaveStage::renamed);
  Saver saver(*run_, events_, [&gate](SaveStage stage) { gate.pass(stage); });
  saver.save();
  train_on();
  saver.poll();
  EXPECT_THAT(names(), testing::IsEmpty());
  gate.open();
  while (!saver.settle(milliseconds(1000))) {
  }
  EXPECT_THAT(names(), testing::IsEmpty());
  saver.poll();
  saver.poll();
  EXPECT_THAT(names(), ElementsAre("saved 1"));
  EXPECT_THAT(notes_.front().message, HasSubstr("training waited"));
}

TEST_F(SaverTest, ThereIsOneSaveInFlight) {
  Gate gate(SaveStage::begun);
  std::atomic<int> begun = 0;
  std::atomic<int> most = 0;
  Saver saver(*run_, events_, [&](SaveStage stage) {
    if (stage == SaveStage::begun) {
      most = std::max<int>(most, ++begun);
    }
    gate.pass(stage);
    if (stage == SaveStage::renamed) {
      --begun;
    }
  });
  saver.save();
  train_on();
  auto opener = std::async(std::launch::async, [&] {
    EXPECT_FALSE(saver.settle(milliseconds(1)));
    gate.open();
  });
  saver.save();
  EXPECT_THAT(names(), testing::Contains("saved 1"));
  EXPECT_TRUE(saver.wait());
  EXPECT_EQ(most, 1);
  EXPECT_THAT(names(), ElementsAre("saved 1", "saved 2"));
  EXPECT_TRUE(runs_.has_checkpoint("run", 2));
}

TEST_F(SaverTest, AFailedSaveIsSurvivedAndTheNextOneIsTried) {
  bool fails = true;
  Saver saver(*run_, events_, [&fails](SaveStage stage) {
    if (fails && stage == SaveStage::model_written) {
      throw std::bad_alloc();
    }
  });
  saver.save();
  EXPECT_FALSE(saver.wait());
  EXPECT_FALSE(saver.wait());
  EXPECT_THAT(names(), ElementsAre("save_failed 1"));
  fails = false;
  saver.save();
  EXPECT_TRUE(saver.wait());
  EXPECT_TRUE(saver.failed());
  EXPECT_TRUE(runs_.has_checkpoint("run", 1));
}

TEST_F(SaverTest, MetricsAreOnTheDiskBeforeTheCheckpointHasItsName) {
  int flushes = 0;
  Saver saver(*run_, events_, [&](SaveStage stage) {
    if (stage == SaveStage::manifest_written) {
      flushes = sink_->flushes;
      EXPECT_FALSE(runs_.has_checkpoint("run", 1));
    }
  });
  saver.save();
  EXPECT_TRUE(saver.wait());
  EXPECT_EQ(flushes, 1);
}

TEST_F(SaverTest, WhereMetricsCannotBeFlushedThereIsNoCheckpoint) {
  sink_->disk_fails = true;
  Saver saver(*run_, events_);
  saver.save();
  EXPECT_FALSE(saver.wait());
  EXPECT_FALSE(runs_.has_checkpoint("run", 1));
  EXPECT_THAT(notes_.front().message, HasSubstr("metrics.jsonl"));
}

TEST_F(SaverTest, KilledAtAnyStageItLeavesWholeCheckpointsOnly) {
  constexpr int kCrashed = 9;
  {
    Saver saver(*run_, events_);
    saver.save();
    ASSERT_TRUE(saver.wait());
  }
  const double first = first_weight();
  train_on();
  for (const SaveStage last :
       {SaveStage::begun, SaveStage::model_written, SaveStage::optimizer_written,
        SaveStage::files_written, SaveStage::manifest_written, SaveStage::renamed}) {
    const int status = test::status_of_child([&] {
      Saver saver(*run_, events_, [last](SaveStage stage) {
        if (stage == last) {
          ::_exit(kCrashed);
        }
      });
      saver.save();
      return saver.wait() ? 0 : 1;
    });
    EXPECT_EQ(status, kCrashed);
    EXPECT_EQ(runs_.has_checkpoint("run", 2), last == SaveStage::renamed);
    EXPECT_EQ(saved_first_weight(1), first);
  }
  EXPECT_EQ(saved_first_weight(2), first_weight());
}

TEST_F(SaverTest, TheLinksLeadThereWhenTheSaveIsReported) {
  Saver saver(*run_, events_);
  for (const std::int64_t step : {1, 2}) {
    saver.save();
    EXPECT_TRUE(saver.wait());
    EXPECT_EQ(std::filesystem::read_symlink(runs_.path() / "run/checkpoints/latest"),
              runs_.checkpoint("run", step).filename());
    train_on();
  }
}

TEST_F(SaverTest, WithoutRoomForACopyTrainingWaitsForAllOfIt) {
  run_->saves_in_background = false;
  const auto training = std::this_thread::get_id();
  Saver saver(*run_, events_,
              [training](SaveStage) { EXPECT_EQ(std::this_thread::get_id(), training); });
  saver.save();
  EXPECT_THAT(names(), ElementsAre("saved 1"));
  EXPECT_TRUE(runs_.has_checkpoint("run", 1));
}

TEST_F(SaverTest, ItsEndWaitsForTheSaveInFlight) {
  Gate gate(SaveStage::begun);
  std::future<void> opener;
  {
    Saver saver(*run_, events_, [&gate](SaveStage stage) { gate.pass(stage); });
    saver.save();
    opener = std::async(std::launch::async, [&gate] { gate.open(); });
  }
  EXPECT_TRUE(runs_.has_checkpoint("run", 1));
}

class SaverThatKeepsTwo : public SaverTest {
 protected:
  SaverThatKeepsTwo() : SaverTest({"checkpoint.keep_last=2"}) {}
};

TEST_F(SaverThatKeepsTwo, WhileTheLossIsHighTheLastCheckpointFromBeforeStays) {
  Saver saver(*run_, events_);
  for (run_->state.step = 1; run_->state.step <= 4; ++run_->state.step) {
    if (run_->state.step == 2) {
      run_->state.low_loss_step = 1;
      run_->state.former_window_loss = 20;
    }
    saver.save();
  }
  EXPECT_TRUE(saver.wait());
  EXPECT_TRUE(runs_.has_checkpoint("run", 1));
  EXPECT_FALSE(runs_.has_checkpoint("run", 2));
  EXPECT_TRUE(runs_.has_checkpoint("run", 3));
}

}  // namespace
}  // namespace transnormer
