// Everything that a training run holds while it goes on, and how it comes to be.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/run_directory.h"
#include "checkpoint/training_state.h"
#include "config/config.h"
#include "dist/world.h"
#include "model/transnormer.h"
#include "optim/loss_scaler.h"
#include "optim/optimizer.h"
#include "optim/weight_average.h"
#include "task/task.h"
#include "train/events.h"
#include "train/micro_batch.h"
#include "train/resume.h"
#include "train/trainer.h"

namespace transnormer {

struct TrainingRun {
  Config config;
  at::Device device;
  dist::World& world;
  RunDirectory directory;  // locked; by rank 0, which alone writes there
  std::shared_ptr<const Task> task;
  std::vector<std::int64_t> unigram_counts = {};
  std::int64_t total_steps = 0;  // that training ends with
  MicroBatch micro_batch = {};
  std::shared_ptr<TransNormer> model;
  std::unique_ptr<Optimizer> optimizer;
  std::unique_ptr<WeightAverage> average = {};  // of the weights; null without optimizer.ema
  LossScaler scaler;
  TrainingState state;
  std::optional<std::chrono::steady_clock::time_point> training_began = {};  // by this process
  bool saves_in_background = true;  // the machine has room for a copy of what is saved
  bool resumed = false;
  std::optional<std::filesystem::path> forked_from = {};  // a checkpoint of another directory
  std::optional<Checkpoint> initial = {};  // whose weights it starts with, where it starts anew
  bool has_losses = false;  // a save or a record of the log failed before it went back
  std::string way_to_go_on = "the same command";  // after a stop, for people
  std::vector<std::int64_t> damaged = {};  // steps of newer checkpoints that were passed over
  std::optional<std::string> already_ended = {};  // why there is nothing left to do
  std::string origin = "started";                 // for people
  std::vector<std::string> changes = {};          // of settings since the last start, for people
  std::vector<std::string> warnings;              // of the set-up, for people
  std::vector<log::NoteEvent> notes = {};         // of the set-up, for scripts too
};

// Chooses device and threads, locks the run directory, decides where to start, prepares the data,
// makes the model. Until begin_writing() nothing of a former run is changed, but that what a killed
// save left is put right. Throws UserError.
// All ranks of the world call it; rank 0 locks the directory, decides and prepares the data, the
// others wait for it and then start from the same.
[[nodiscard]] std::unique_ptr<TrainingRun> set_up(const TrainRequest& request, dist::World& world);
// In a world of one.
[[nodiscard]] std::unique_ptr<TrainingRun> set_up(const TrainRequest& request);

// Throws UserError that names a rank whose weights are not, bit for bit, those of rank 0.
void require_equal_weights(const TrainingRun& run);

// Where set_up() begins, whatever the run holds: the saved state, or new weights and nothing done.
// Throws UserError.
void start_from(TrainingRun& run, const StartingPoint& start);
void start_anew(TrainingRun& run);

}  // namespace transnormer
