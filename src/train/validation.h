// Validation while training.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "train/training_run.h"

namespace transnormer {

// True at the steps that are validated: multiples of validation.every, and the last one.
[[nodiscard]] bool is_validation_due(const TrainingRun& run);

// The task's report on its validation data, dropout off; nothing where should_stop said so on the
// way.
[[nodiscard]] std::optional<Report> validate(const TrainingRun& run,
                                             const std::function<bool()>& should_stop);

// The same with the running mean of the weights, of a run that has one.
[[nodiscard]] std::optional<Report> validate_average(const TrainingRun& run,
                                                     const std::function<bool()>& should_stop);

// What validations are made on and with.
struct ValidationKind {
  std::string data_digest;
  std::int64_t context_window = 0;
  std::int64_t tokens = 0;  // the first so many; 0: all
};

// Of the validations of a run.
[[nodiscard]] ValidationKind validation_kind(const TrainingRun& run);

// Notes the kind of the validations to come. Where the earlier ones were of another kind, their
// losses cannot be compared with those to come: best loss and patience start anew. Returns what
// changed then, for people. Where the earlier kind is not known, it is taken to be the same.
[[nodiscard]] std::optional<std::string> note_validation_kind(TrainingState& state,
                                                              const ValidationKind& kind);

// Notes the report of the present step: the best so far, or one more without gain. Returns whether
// it is the best, as the task judges.
bool record_validation(TrainingState& state, const Task& task, const Report& report);

}  // namespace transnormer
