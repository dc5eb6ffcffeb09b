// The training run: batches -> forward and backward -> gradient statistics -> clipping -> optimizer
// -> schedule -> events, with validation, checkpoints, signals and early stopping around it.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "config/load.h"
#include "dist/world.h"
#include "util/error.h"

namespace transnormer {

enum class ResumeMode { automatic, never, checkpoint };

struct TrainRequest {
  LoadedConfig loaded;
  std::filesystem::path run_dir = {};
  ResumeMode resume = ResumeMode::automatic;
  std::filesystem::path resume_from = {};  // with ResumeMode::checkpoint
};

// Runs to the end of training, or to a stop, which signals ask for once their handlers are
// installed (util/signal.h). Throws UserError, DivergedError, and StoppedError for a stop before
// there is anything to save. A save or a record of the log that failed on the way is logged and
// shows in the status. In a world of several all call it with the same request; rank 0 alone
// prepares data and writes.
[[nodiscard]] ExitStatus train(const TrainRequest& request, dist::World& world);
// In a world of one.
[[nodiscard]] ExitStatus train(const TrainRequest& request);

struct TrainingRun;

// The same of a run that is set up: writes, trains, and goes back after divergences as often as
// train.divergence_retries says.
[[nodiscard]] ExitStatus train(TrainingRun& run);

}  // namespace transnormer
