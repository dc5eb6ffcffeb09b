// A model for Python: weights, settings, tokenizer, and the file that reads them.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "config/config.h"
#include "model/weights.h"
#include "tokenizer/tokenizer.h"

namespace transnormer {

// What an export is made of.
struct ExportContent {
  const Config& config;
  const Tokenizer& tokenizer;
  const std::vector<NamedTensor>& weights;  // named_tensors() of the model
  std::int64_t step = 0;
  std::int64_t tokens = 0;
};

// Throws UserError with a line for each reason why modeling_transnormer.py cannot be such a model:
// an attention that it does not know, one that sees what comes after.
void require_exportable(const ModelConfig& model);

// Writes into `out` (see WholeDirectory) model.safetensors, config.json, generation_config.json and
// tokenizer_config.json as Hugging Face has them, the tokenizer's file, modeling_transnormer.py,
// and transnormer.json, the manifest. Throws UserError as require_exportable() and where `out` is
// no place for it, WriteError. Returns where it is.
std::filesystem::path write_export(const ExportContent& content, const std::filesystem::path& out);

// The same of a checkpoint. Throws UserError where it does not hold those weights, or they are not
// finite, too.
std::filesystem::path export_checkpoint(const Checkpoint& checkpoint, Weights weights,
                                        const std::filesystem::path& out);

}  // namespace transnormer
