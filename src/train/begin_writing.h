// The moment from which a run changes its directory.
#pragma once

#include "train/events.h"
#include "train/training_run.h"

namespace transnormer {

// Opens train.log and the event sinks, writes config.json, cuts away what was written about steps
// after the one that this run starts from, and says what is going on. Throws, before any of it,
// WriteError where the disk has no room for the checkpoints or the directory is no longer the one
// that was locked, and UserError where a file that is no run's would be overwritten. A damaged
// config.json beside the checkpoint that the run goes on from is set aside.
// The logs ask the run about its directory, so it must outlive them.
[[nodiscard]] Events begin_writing(TrainingRun& run);

}  // namespace transnormer
