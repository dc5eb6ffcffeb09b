// Saves checkpoints and keeps the run directory in order. A failed save is told and survived.
#pragma once

#include <filesystem>

#include "train/events.h"
#include "train/training_run.h"

namespace transnormer {

class Saver {
 public:
  Saver(TrainingRun& run, Events& events) : run_(run), events_(events) {}

  // Saves the present state, if the run directory is still this run's; then sets the links and
  // removes checkpoints that nothing keeps. False where the save failed, for whatever reason.
  bool save();
  // True once a save has failed, whatever went well since.
  [[nodiscard]] bool failed() const { return failed_; }

 private:
  std::filesystem::path write();
  void tidy();

  TrainingRun& run_;
  Events& events_;
  bool failed_ = false;
};

}  // namespace transnormer
