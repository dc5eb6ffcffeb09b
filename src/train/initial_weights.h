// A fresh run that begins with the weights of another (train.init_from).
#pragma once

#include <memory>
#include <optional>

#include "checkpoint/checkpoint.h"
#include "config/config.h"
#include "tokenizer/tokenizer.h"

namespace transnormer {

struct TrainingRun;

// The checkpoint that train.init_from names, of a run directory the best, else the newest; nothing
// where it names none. Throws UserError.
[[nodiscard]] std::optional<Checkpoint> open_initial_weights(const Config& config);

// The tokenizer that such weights fit: the checkpoint's, unless the config names a file, which must
// hold the same. Throws UserError.
[[nodiscard]] std::shared_ptr<const Tokenizer> tokenizer_of(const Checkpoint& initial,
                                                            const Config& config);

// Gives the run's model, made anew, those weights of run.initial that it has a place for, by name,
// and notes for people what was taken, is new and was left; a tensor of other sizes is a warning.
// Throws UserError where they have nothing in common.
void take_initial_weights(TrainingRun& run);

}  // namespace transnormer
