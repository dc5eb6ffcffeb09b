// Writes a checkpoint so that it is whole or absent.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <vector>

#include "checkpoint/training_state.h"
#include "config/config.h"
#include "model/weights.h"
#include "tokenizer/tokenizer.h"

namespace transnormer {

// Everything a save writes.
struct CheckpointContent {
  const Config& config;
  std::vector<NamedTensor> model;      // named_tensors() of it, or copies
  std::vector<NamedTensor> optimizer;  // its named_state()
  const TrainingState& state;
  const Tokenizer& tokenizer;
  const std::vector<std::int64_t>& unigram_counts;
  std::vector<NamedTensor> average = {};  // of the weights, where there is one
};

// The points a save passes, in this order; a crash at any of them leaves whole checkpoints only.
enum class SaveStage {
  begun,          // the temporary directory is there
  model_written,  // and the average of the weights
  optimizer_written,
  files_written,     // all but the manifest
  manifest_written,  // the temporary directory is a whole checkpoint
  renamed,           // it has its name
};

// Writes `checkpoints/step-XXXXXXXX` in the run directory, which must be there: temporary
// directory, flush, rename. A checkpoint of the same step is replaced. Throws WriteError; the
// checkpoints before it stay. `on_stage` is told of each stage, and gives the save up by throwing.
std::filesystem::path save_checkpoint(const std::filesystem::path& run_dir,
                                      const CheckpointContent& content,
                                      const std::function<void(SaveStage)>& on_stage = {});

}  // namespace transnormer
