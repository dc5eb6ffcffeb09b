// Going back after a divergence, and on with other samples (train.divergence_retries).
#pragma once

#include "train/divergence.h"
#include "train/training_run.h"

namespace transnormer {

// Whether the config lets the run go back once more.
[[nodiscard]] bool may_go_back(const TrainingRun& run);

// Takes the run to its newest sound checkpoint of a step up to `sound_until`; where there is none,
// to what it began with: the checkpoint of another directory that it goes on from, or new weights
// (those of train.init_from among them).
// Let that be step k, and n updates be begun when training diverged, the last of them perhaps given
// up: samples up to n·G + p were seen, p being those passed over before. The next update is to take
// those from there on, so that p grows by (n - k)·G. What was written about steps after k goes with
// begin_writing(), which also tells of it; the checkpoint of step k knows nothing of it, so that a
// run that is killed before it saves again diverges again and goes the same way. Throws UserError
// where a checkpoint cannot be read, and DivergedError where a resumed run is to begin anew with
// the weights of train.init_from and what is there now is not, by digest, what it began with.
void go_back(TrainingRun& run, const Divergence::Facts& divergence);

}  // namespace transnormer
