#include "task/causal.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "ops/loss/linear_cross_entropy.h"
#include "util/error.h"
#include "util/units.h"

namespace transnormer {

CausalTask::CausalTask(const Config& config, PreparedData data)
    : window_(config.data.tokens_per_sample),
      context_window_(config.validation.context_window),
      max_validation_tokens_(config.validation.max_tokens),
      tokenizer_(data.tokenizer),
      train_(data.at(Split::train)),
      valid_(data.find(Split::valid)),
      samples_(train_.stream, config.data.tokens_per_sample, tokenizer_->first_input()) {}

double CausalTask::bytes_per_sample() const {
  return 2 * sizeof(std::int64_t) * static_cast<double>(samples_.length());
}

std::vector<std::int64_t> CausalTask::token_counts() const {
  return count_tokens(train_.stream, tokenizer_->size());
}

std::string CausalTask::describe_data() const {
  const std::string part = validates_in_part()
                               ? "; validates on " + format_count(validation_size()) + " of " +
                                     format_count(valid_->stream.size()) +
                                     " tokens (validation.max_tokens, whole windows)"
                               : "";
  return format_count(train_.stream.size()) + " tokens in " + format_count(samples_.count()) +
         " samples of " + format_count(window_) + "; validation: " +
         (valid_ ? format_count(valid_->stream.size()) + " (" +
                       format_count(valid_->counts.unknown) + " unknown)"
                 : "none") +
         part;
}

Batch CausalTask::make_batch(std::span<const std::int64_t> samples, std::int64_t first_position,
                             std::int64_t rows) const {
  const std::int64_t length = samples_.length();
  Batch batch{.first_position = first_position, .samples = std::ssize(samples)};
  at::Tensor inputs = at::empty({rows, length}, at::kLong);
  at::Tensor targets = at::empty({rows, length}, at::kLong);
  auto* input = inputs.mutable_data_ptr<std::int64_t>();
  auto* target = targets.mutable_data_ptr<std::int64_t>();
  for (const std::int64_t sample : samples) {
    batch.count += samples_.copy(sample, input, target);
    input += length;
    target += length;
  }
  const std::int64_t masked = (rows - batch.samples) * length;
  std::fill_n(input, masked, tokenizer_->first_input());
  std::fill_n(target, masked, kIgnoredTarget);
  batch.tensors = {{"inputs", inputs}, {"targets", targets}};
  return batch;
}

Batch CausalTask::part_of(const Batch& batch, int part, int parts) const {
  if (parts == 1) {
    return batch;
  }
  const auto cut = [&](const char* name) {
    const at::Tensor& whole = batch.tensors.at(name);
    const std::int64_t time = whole.size(1) / parts;
    TORCH_CHECK(time * parts == whole.size(1), "samples of ", whole.size(1), " tokens have no ",
                parts, " equal parts");
    return whole.narrow(1, part * time, time).contiguous();
  };
  const at::Tensor targets = cut("targets");
  return {.first_position = batch.first_position,
          .samples = batch.samples,
          .count = targets.ne(kIgnoredTarget).sum().item<std::int64_t>(),
          .tensors = {{"inputs", cut("inputs")}, {"targets", targets}}};
}

Loss causal_loss(TransNormer& model, const Tensors& batch, const ForwardContext& context,
                 const at::Tensor& scale) {
  const at::Tensor hidden = model.forward(batch.at("inputs"), context).flatten(0, 1);
  const ops::CrossEntropy result = ops::linear_cross_entropy(
      hidden, model.output_layer(), batch.at("targets").flatten(),
      {.compute = context.compute, .scale = scale, .should_stop = context.should_stop});
  return {result.loss, result.nll.view({1}), model.output_weight().gathers_gradient()};
}

Loss CausalTask::loss(TransNormer& model, const Tensors& batch, const ForwardContext& context,
                      const at::Tensor& scale) const {
  return causal_loss(model, batch, context, scale);
}

Report CausalTask::report(const Sums& sums) const {
  Report report = Task::report(sums);
  report.figures.emplace_back("perplexity", std::exp(report.loss));
  return report;
}

std::optional<double> CausalTask::loss_of_guessing(const TransNormer& model) const {
  return std::log(static_cast<double>(model.size().vocab_size));
}

std::string CausalTask::validation_digest() const {
  return valid_ ? valid_->stream.digest() : "";
}

std::int64_t CausalTask::validation_size() const {
  return valid_ ? scored_tokens(valid_->stream.size(), evaluate_options()) : 0;
}

bool CausalTask::validates_in_part() const {
  return valid_ && validation_size() < valid_->stream.size();
}

EvaluateOptions CausalTask::evaluate_options() const {
  EvaluateOptions how;
  how.window = window_;
  how.context_window = context_window_;
  how.max_tokens = max_validation_tokens_;
  how.first_input = tokenizer_->first_input();
  return how;
}

std::optional<Sums> CausalTask::validate(TransNormer& model,
                                         const ValidationOptions& options) const {
  EvaluateOptions how = evaluate_options();
  how.batch_size = options.batch_size;
  how.compute = options.compute;
  how.on_progress = options.on_progress;
  how.should_stop = options.should_stop;
  how.sequence = options.sequence;
  how.batches = options.batches;
  const EvaluateResult result = evaluate(model, valid_->stream, how);
  return result.complete ? std::optional(Sums{result.nll_sum, result.tokens}) : std::nullopt;
}

void CausalObjective::require_model(const ModelConfig& model) const {
  if (!model.causal) {
    throw UserError(
        "model.causal: expected true with train.objective \"causal\", and there is no other "
        "objective yet; only config, inspect, bench and analyze take a model that is not causal");
  }
}

std::unique_ptr<Task> CausalObjective::make_task(const TaskRequest& request) const {
  PrepareOptions options{.wanted = {Split::train}};
  if (request.validates) {
    options.wanted.push_back(Split::valid);
  }
  return std::make_unique<CausalTask>(
      request.config, request.tokenizer ? prepare_data(request.config, request.tokenizer, options)
                                        : prepare_data(request.config, options));
}

}  // namespace transnormer
