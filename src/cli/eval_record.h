// RUN/evals.jsonl: what was measured of a run's checkpoints on its own splits.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "cli/eval_inputs.h"
#include "cli/eval_options.h"

namespace transnormer::cli {

// The file that a result belongs into: that of the run whose checkpoint was scored on a split of
// its own config, the texts of which --set has not changed. Nothing else belongs anywhere.
[[nodiscard]] std::optional<std::filesystem::path> record_of(const Scoring& scoring,
                                                             const EvalOptions& options);

// Adds its line: {"step", "checkpoint", "model_sha256", "weights", "split", "text_digest", "date",
// "precision"}, then the answer. That it cannot be written is a warning: the answer stands.
void record(const std::filesystem::path& file, const Scoring& scoring, const EvalOptions& options,
            const Evaluation& evaluation);

}  // namespace transnormer::cli
