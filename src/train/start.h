// Where a run starts from, decided once for all ranks.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "checkpoint/run_directory.h"
#include "checkpoint/training_state.h"
#include "dist/world.h"
#include "task/task.h"
#include "train/resume.h"
#include "train/trainer.h"

namespace transnormer {

struct Start {
  RunDirectory directory;  // locked by rank 0
  StartingPoint point;
  Config config;  // the one asked for, with what follows from the point
  std::unique_ptr<Task> task;
};

// Rank 0 locks the run directory, chooses the checkpoint and prepares the data, however long that
// takes; then the others read the same. `now`: what the settings at the checkpoint are compared
// with. Warnings are for people, of rank 0 only. Throws UserError, also where a rank does not see
// what rank 0 writes.
[[nodiscard]] Start start_together(const TrainRequest& request, dist::World& world,
                                   const TrainingState& now, std::vector<std::string>& warnings);

}  // namespace transnormer
