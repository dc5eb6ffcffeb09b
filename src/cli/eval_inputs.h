// What `eval` scores: each checkpoint on each text, all of it open and checked before the first is
// scored.
#pragma once

#include <list>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "cli/eval_options.h"
#include "config/load.h"
#include "dist/world.h"
#include "task/evaluation_texts.h"
#include "task/objective.h"

namespace transnormer::cli {

// A checkpoint with the config whose data it is scored on.
struct Subject {
  std::string given;  // on the command line
  Checkpoint checkpoint;
  LoadedConfig loaded;
};

// One of its texts.
struct Scoring {
  const Subject& subject;
  std::string text;  // as it was given; empty: the split
  EvaluationRequest request;
  std::unique_ptr<Evaluator> evaluator = nullptr;
};

struct EvalInputs {
  std::vector<std::string> texts;  // one for each file; none: a split
  std::vector<Subject> subjects;
  EvaluationTexts shared_texts;
  std::list<Scoring> scorings;  // by subject, then by text
};

// Opens the checkpoints, the same ones on all ranks, and names the texts. Throws UserError with a
// line for each fault.
[[nodiscard]] std::unique_ptr<EvalInputs> open_inputs(dist::World& world,
                                                      const EvalOptions& options);

// Reads each text, and checks each request. The groups of the world are formed by then. Throws
// UserError.
void prepare_scorings(EvalInputs& inputs, dist::World& world, const EvalOptions& options);

}  // namespace transnormer::cli
