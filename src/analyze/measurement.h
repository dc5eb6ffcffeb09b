// The measurements of `analyze` by name, each from a model and windows of text to an answer and
// files.
#pragma once

#include <string>
#include <vector>

#include "analyze/answer.h"
#include "analyze/output_directory.h"
#include "analyze/subject.h"
#include "analyze/weights.h"

namespace transnormer {

enum class Measurement { dilution, maps, gradients, scale, rank };
[[nodiscard]] const char* to_string(Measurement what);

// The names of all files that it may write for such a model.
[[nodiscard]] std::vector<std::string> files_of(Measurement what, const ModelConfig& model,
                                                const Selection& selection);

// Measures, and writes tables (CSV) and pictures (PNG) into `out`. The answer's JSON begins with
// "what", the weights, the text, and how much of it; configs/README.md lists its keys. Throws
// UserError where a selected head is not there, WriteError where a file cannot be written.
[[nodiscard]] Answer measure(Measurement what, const Subject& subject, const Selection& selection,
                             OutputDirectory& out);

}  // namespace transnormer
