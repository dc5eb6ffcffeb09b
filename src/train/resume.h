// Where a run starts from, and what may have changed since.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/run_directory.h"
#include "config/config.h"
#include "train/trainer.h"

namespace transnormer {

struct StartingPoint {
  std::optional<Checkpoint> checkpoint;    // nothing: from the start
  std::vector<std::int64_t> damaged = {};  // steps of newer ones that were passed over
  std::vector<std::string> warnings = {};  // of those
};

// automatic: the newest whole checkpoint of the run directory, if it holds any, and of those that
// are not proven to be damaged: one that merely cannot be read or used now is a UserError.
// never: UserError where the directory holds a run. checkpoint: the one named; where it is of
// another directory, this one must not hold a run yet.
[[nodiscard]] StartingPoint choose_start(const TrainRequest& request,
                                         const RunDirectory& directory);

// What the program runs on now, recorded in checkpoints.
void record_environment(TrainingState& state, at::Device device);

// Compares with the run that was saved. Returns a warning for each difference that may change the
// bits of what follows; throws UserError that names every one that must not change. Places of files
// are judged by content, in check_same_content().
[[nodiscard]] std::vector<std::string> compare_settings(const Checkpoint& checkpoint,
                                                        const Config& config,
                                                        const TrainingState& now);

// The tokenizer that goes on: the saved one, unless the config names a file, which must hold the
// same. Throws UserError.
[[nodiscard]] std::shared_ptr<const Tokenizer> same_tokenizer(const Checkpoint& checkpoint,
                                                              const Config& config);

// Throws UserError where the training text is not the one of the saved run.
void require_same_text(const Checkpoint& checkpoint, const std::string& train_data_digest);

}  // namespace transnormer
