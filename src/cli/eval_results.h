// Prints what `eval` found.
#pragma once

#include <string>
#include <vector>

#include "cli/eval_inputs.h"
#include "cli/eval_options.h"
#include "task/objective.h"

namespace transnormer::cli {

// Where a result belongs.
struct ResultName {
  std::string given;       // the checkpoint, on the command line
  std::string checkpoint;  // the place that this led to
  std::int64_t step = 0;
  std::string text;  // or the split
  bool is_split = false;
};

struct Result {
  ResultName name;
  Evaluation evaluation;
};

[[nodiscard]] ResultName name_of(const Scoring& scoring, const EvalOptions& options);

// With one of each: the answer itself, as one JSON object or, for people, as a table of its
// figures. With several, people see a line for each as soon as it is there; JSON and Markdown come
// at the end, and until then each result is told in the log, so that none is lost to what comes
// after it.
class Results {
 public:
  // names: of all that will come.
  Results(AnswerForm form, std::vector<ResultName> names);

  void add(const Result& result);
  void finish() const;

 private:
  [[nodiscard]] bool is_single() const { return names_.size() == 1; }
  void print_line(const Result& result) const;

  AnswerForm form_;
  std::vector<ResultName> names_;
  std::vector<Result> results_;
};

// The results as a Markdown table, a row each. What is the best of at least two checkpoints on a
// text, where all that were scored on it can be compared, is bold.
[[nodiscard]] std::string markdown_table(const std::vector<Result>& results);

}  // namespace transnormer::cli
