// Causal language modelling: each token is predicted from those before it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "data/prepare.h"
#include "data/samples.h"
#include "eval/evaluate.h"
#include "task/objective.h"
#include "task/task.h"

namespace transnormer {

// Samples are those of a token stream (data/samples.h). A batch has "inputs" and "targets", int64
// [rows, time]; a target of kIgnoredTarget does not count. The loss is -log p(target); what counts
// is the targets.
class CausalTask : public Task {
 public:
  // Validates on the split of that name where it is there, by windows of data.tokens_per_sample
  // (eval/evaluate.h), on its first validation.max_tokens where those are set.
  CausalTask(const Config& config, PreparedData data);

  [[nodiscard]] std::shared_ptr<const Tokenizer> tokenizer() const override { return tokenizer_; }
  [[nodiscard]] std::int64_t samples() const override { return samples_.count(); }
  [[nodiscard]] std::int64_t sample_length() const override { return samples_.length(); }
  [[nodiscard]] double bytes_per_sample() const override;
  [[nodiscard]] std::string data_digest() const override { return train_.stream.digest(); }
  [[nodiscard]] std::vector<std::int64_t> token_counts() const override;
  [[nodiscard]] std::string describe_data() const override;
  [[nodiscard]] Batch make_batch(std::span<const std::int64_t> samples, std::int64_t first_position,
                                 std::int64_t rows) const override;
  [[nodiscard]] Batch part_of(const Batch& batch, int part, int parts) const override;

  [[nodiscard]] Loss loss(TransNormer& model, const Tensors& batch, const ForwardContext& context,
                          const at::Tensor& scale) const override;
  // With "perplexity".
  [[nodiscard]] Report report(const Sums& sums) const override;
  // That all tokens of the vocabulary are alike.
  [[nodiscard]] std::optional<double> loss_of_guessing(const TransNormer& model) const override;

  [[nodiscard]] std::string validation_digest() const override;
  [[nodiscard]] std::int64_t validation_size() const override;  // tokens
  [[nodiscard]] bool validates_in_part() const override;
  [[nodiscard]] std::optional<Sums> validate(TransNormer& model,
                                             const ValidationOptions& options) const override;

 private:
  [[nodiscard]] EvaluateOptions evaluate_options() const;

  std::int64_t window_;
  std::int64_t context_window_;
  std::int64_t max_validation_tokens_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  PreparedSplit train_;
  std::optional<PreparedSplit> valid_;
  Samples samples_;
};

// The loss alone, of any inputs and targets.
[[nodiscard]] Loss causal_loss(TransNormer& model, const Tensors& batch,
                               const ForwardContext& context, const at::Tensor& scale);

class CausalObjective : public Objective {
 public:
  // Only one in which no token sees what comes after it.
  void require_model(const ModelConfig& model) const override;
  [[nodiscard]] bool continues_text() const override { return true; }
  [[nodiscard]] std::unique_ptr<Task> make_task(const TaskRequest& request) const override;
  // Perplexity on a text: see the evaluation protocol in the README.
  [[nodiscard]] std::unique_ptr<Evaluator> make_evaluator(
      const EvaluationRequest& request) const override;
};

}  // namespace transnormer
