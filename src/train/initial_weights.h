// A fresh run that begins with the weights of another (train.init_from).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "config/config.h"
#include "config/load.h"
#include "tokenizer/tokenizer.h"

namespace transnormer {

struct TrainingRun;

// The checkpoint that train.init_from names, of a run directory the best, else the newest; nothing
// where it names none. Throws UserError.
[[nodiscard]] std::optional<Checkpoint> open_initial_weights(const Config& config);

// Text is coded as for the weights: tokenizer.type and data.line_end, where the config names them
// not, become these.
void take_coding(TokenizerType type, LineEnd line_end, LoadedConfig& loaded);

struct CodingTaken {
  std::vector<std::string> told;  // what became of which key, for people
  std::vector<std::string> warnings;
};

// The same, of the checkpoint that a fresh run begins with. A warning where data.line_end is named
// and not as it was for the weights.
[[nodiscard]] CodingTaken take_coding(const Checkpoint& initial, LoadedConfig& loaded);

// The tokenizer that such weights fit: the checkpoint's, unless the config names a file, which must
// hold the same. Throws UserError, also where tokenizer.type is another (see take_coding()).
[[nodiscard]] std::shared_ptr<const Tokenizer> tokenizer_of(const Checkpoint& initial,
                                                            const Config& config);

// Gives the run's model, made anew, those weights of run.initial that it has a place for, by name,
// and notes for people what was taken, is new and was left; a tensor of other sizes is a warning.
// The run's state records which they are. Throws UserError where they have nothing in common.
void take_initial_weights(TrainingRun& run);

}  // namespace transnormer
