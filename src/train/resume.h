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
  std::optional<Checkpoint> checkpoint = {};  // nothing: from the start
  std::optional<Checkpoint> initial = {};     // .. with the weights of this one (initial_weights.h)
  bool is_fork = false;                       // it is of another directory
  std::vector<std::int64_t> damaged = {};     // steps of newer ones that were passed over
  std::vector<std::string> warnings = {};     // of those, and of others passed over
  std::vector<std::string> changes = {};      // of settings, without a warning (told_changes())
  // For people: what trains anew where going on is refused, and what goes on after a stop.
  std::string way_to_start_anew = "choose another --run-dir";
  std::string way_to_go_on = "the same command";
};

// automatic: the newest sound checkpoint of the run directory, if it holds any, and of those that
// are not proven to be damaged: one that merely cannot be read or used now is a UserError. One that
// was saved amid skipped updates is passed over, unless there is no other.
// never: UserError where the directory holds a run. checkpoint: the one named; where it is of
// another directory, this one must not have checkpoints yet.
[[nodiscard]] StartingPoint choose_start(const TrainRequest& request,
                                         const RunDirectory& directory);

// As `automatic`, of the checkpoints of a step up to `most`.
[[nodiscard]] StartingPoint newest_sound(const RunDirectory& directory, std::int64_t most);

// What the program runs on now, recorded in checkpoints.
void record_environment(TrainingState& state, at::Device device, std::int64_t ranks);

// Compares with the run that was saved. Returns a warning for each difference that may change the
// bits of what follows, such as "optimizer.lr: 0.0005 -> 0.0001 (--set)"; throws UserError that
// names every one that must not change, or where the checkpoint is an average, which has no
// optimizer's state. Places of files are judged by content: same_tokenizer(), require_same_data().
[[nodiscard]] std::vector<std::string> compare_settings(const StartingPoint& start,
                                                        const LoadedConfig& loaded,
                                                        const TrainingState& now);

// The differences that are left, for people: what may change in silence since the checkpoint, if
// there is one, and whatever else was set otherwise at the last start in this directory, whose
// config it still has. `run_name` follows the directory.
[[nodiscard]] std::vector<std::string> told_changes(const StartingPoint& start,
                                                    const std::optional<Config>& last_start,
                                                    const LoadedConfig& loaded);

// The tokenizer that goes on: the saved one, unless the config names a file, which must hold the
// same. Throws UserError.
[[nodiscard]] std::shared_ptr<const Tokenizer> same_tokenizer(const StartingPoint& start,
                                                              const Config& config);

// Throws UserError where the training text is not the one of the saved run.
void require_same_data(const StartingPoint& start, const std::string& train_data_digest);

// A warning where the learning rate of the next update, the one after `step`, is, as it is shown,
// another than the saved run would have gone on with, for whatever reason, and where that of later
// ones is, since training ends elsewhere and the schedule falls towards the end. `samples`: of an
// epoch.
[[nodiscard]] std::optional<std::string> change_of_rate(const Config& saved, const Config& config,
                                                        std::int64_t step, std::int64_t samples);

// Whether the losses of the saved run say nothing about those to come.
[[nodiscard]] bool learns_otherwise(const Config& saved, const Config& config);

}  // namespace transnormer
