#include "train/validation.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "eval/evaluate.h"
#include "log/progress.h"
#include "ops/runtime/device.h"
#include "util/units.h"

namespace transnormer {

bool is_validation_due(const TrainingRun& run) {
  const std::int64_t every = run.config.validation.every;
  const std::int64_t step = run.state.step;
  return every > 0 && !run.task->validation_digest().empty() && step > 0 &&
         run.state.validated_step != step && (step % every == 0 || step == run.total_steps);
}

namespace {

// The same at any number of ranks, and enough batches for many of them.
std::int64_t batch_size(const TrainingRun& run) {
  const Config& config = run.config;
  return config.validation.batch_size > 0
             ? config.validation.batch_size
             : std::min(windows_a_pass(run.device, run.task->sample_length()),
                        config.train.resolved_micro_batch_size());
}

std::string describe_part(std::int64_t tokens) {
  return tokens == 0 ? "all tokens" : "the first " + format_count(tokens);
}

}  // namespace

std::optional<Report> validate(const TrainingRun& run, const std::function<bool()>& should_stop) {
  const Config& config = run.config;
  log::ProgressBar bar("validate", run.task->validation_size(), 0, log::draws_bars());
  const std::optional<Sums> sums = run.task->validate(
      *run.model, {.batch_size = batch_size(run),
                   .compute = ops::scalar_type(config.train.precision),
                   .on_progress = [&bar](std::int64_t done) { bar.update(done); },
                   .should_stop = should_stop,
                   .sequence = run.world.sequence(),
                   .batches = run.world.samples()});
  return sums ? std::optional(run.task->report(*sums)) : std::nullopt;
}

ValidationKind validation_kind(const TrainingRun& run) {
  const Task& task = *run.task;
  return {.data_digest = task.validation_digest(),
          .context_window = run.config.validation.context_window,
          .tokens = task.validates_in_part() ? task.validation_size() : 0};
}

std::optional<Report> validate_average(const TrainingRun& run,
                                       const std::function<bool()>& should_stop) {
  const WeightAverage::InPlace in_place(*run.average);
  return validate(run, should_stop);
}

std::optional<std::string> note_validation_kind(TrainingState& state, const ValidationKind& kind) {
  const std::string digest = std::exchange(state.valid_data_digest, kind.data_digest);
  const std::int64_t window = std::exchange(state.validation_context_window, kind.context_window);
  const std::int64_t tokens = std::exchange(state.validation_tokens, kind.tokens);
  std::string changed;
  if (!digest.empty() && digest != kind.data_digest) {
    changed = "data.valid holds another text";
  } else if (window >= 0 && window != kind.context_window) {
    changed = "validation.context_window was " + format_count(window) + " and is " +
              format_count(kind.context_window);
  } else if (tokens != kind.tokens) {
    changed = "validation.max_tokens took " + describe_part(tokens) + " and takes " +
              describe_part(kind.tokens);
  }
  if (changed.empty() || state.validated_step < 0) {
    return std::nullopt;
  }
  std::string best = state.best_step < 0 ? "no loss"
                                         : "the loss " + format_fixed(state.best_valid_loss, 4) +
                                               " of step " + format_count(state.best_step);
  state.validated_step = -1;
  state.best_step = -1;
  state.best_valid_loss = 0;
  state.best_valid_figures.clear();
  state.validations_without_gain = 0;
  return changed + ": validation starts anew, " + best + " is the best no longer";
}

bool record_validation(TrainingState& state, const Task& task, const Report& report) {
  state.validated_step = state.step;
  const Report best_so_far{
      .loss = state.best_valid_loss,
      .figures = {state.best_valid_figures.begin(), state.best_valid_figures.end()}};
  const bool best =
      std::isfinite(report.loss) && (state.best_step < 0 || task.is_better(report, best_so_far));
  if (best) {
    state.best_valid_loss = report.loss;
    state.best_valid_figures = {report.figures.begin(), report.figures.end()};
    state.best_step = state.step;
    state.validations_without_gain = 0;
  } else {
    ++state.validations_without_gain;
  }
  return best;
}

}  // namespace transnormer
