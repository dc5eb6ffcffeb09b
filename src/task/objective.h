// The kinds of tasks, as train.objective names them.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "data/prepare.h"
#include "dist/group.h"
#include "task/task.h"
#include "tokenizer/tokenizer.h"

namespace transnormer {

// What a task is made of.
struct TaskRequest {
  const Config& config;
  std::shared_ptr<const Tokenizer> tokenizer = nullptr;  // null: the config's
  bool validates = false;                                // whether validation data is wanted
};

class EvaluationTexts;  // task/evaluation_texts.h

// What `eval` asks for.
struct EvaluationRequest {
  const Config& trained;  // with which the model was trained
  const Config& config;   // whose data is read
  std::shared_ptr<const Tokenizer> tokenizer;
  const std::vector<std::int64_t>& token_counts;  // of the training data
  Split split = Split::test;
  std::string text = {};       // a file, in place of a split
  bool window_is_set = false;  // data.tokens_per_sample of `config` counts, not that of `trained`
  std::optional<std::int64_t> context_window = std::nullopt;
  // Where the loss of each item goes; empty: nowhere. Of several ranks one may name it.
  std::string per_item_file = {};
  at::ScalarType compute = at::kFloat;
  dist::Group sequence{};            // which share each sequence; every rank gets the whole answer
  dist::Group batches{};             // .. and which share out the batches (eval/evaluate.h)
  EvaluationTexts* texts = nullptr;  // that it shares with other requests; null: with none
};

// What `eval` answers.
struct Evaluation {
  // A column of a table of several evaluations. Less is better among values of one basis, which
  // says what they are of; without a basis they are not compared.
  struct Figure {
    std::string name;
    std::string shown;
    double value = 0;
    std::string basis = {};
  };
  struct Row {
    std::string name;
    std::string value;
    std::string meaning;
  };
  std::shared_ptr<nlohmann::ordered_json> answer;  // for scripts
  std::vector<Row> table;                          // for people
  std::string protocol;
  std::vector<Figure> figures = {};
};

// Reads what a model is evaluated on, then evaluates it.
class Evaluator {
 public:
  virtual ~Evaluator() = default;
  // Of what is evaluated on; ranks that evaluate together must have the same.
  [[nodiscard]] virtual std::string text_digest() const { return {}; }
  // Nothing where a signal asked to stop on the way.
  [[nodiscard]] virtual std::optional<Evaluation> evaluate(TransNormer& model) const = 0;
};

class Objective {
 public:
  virtual ~Objective() = default;
  // Throws UserError for a model that this cannot be learned by.
  virtual void require_model(const ModelConfig& /*model*/) const {}
  // Whether a model that has learned this continues text.
  [[nodiscard]] virtual bool continues_text() const { return false; }
  // Prepares the data. Throws UserError.
  [[nodiscard]] virtual std::unique_ptr<Task> make_task(const TaskRequest& request) const = 0;
  // Checks what is asked for and reads the data. The request must outlive the evaluator. Throws
  // UserError.
  [[nodiscard]] virtual std::unique_ptr<Evaluator> make_evaluator(
      const EvaluationRequest& request) const = 0;
};

// By the name in the config (config/objectives.h).
[[nodiscard]] const Objective& objective(const std::string& name);
// Makes it one of those that a config can name. A name can be added once.
void add_objective(const std::string& name, std::unique_ptr<const Objective> objective);

}  // namespace transnormer
