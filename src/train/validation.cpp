#include "train/validation.h"

#include <cmath>

#include "eval/evaluate.h"
#include "log/progress.h"
#include "ops/device.h"

namespace transnormer {

bool is_validation_due(const TrainingRun& run) {
  const std::int64_t every = run.config.validation.every;
  const std::int64_t step = run.state.step;
  return run.valid_stream && step > 0 && run.state.validated_step != step &&
         (step % every == 0 || step == run.total_steps);
}

std::optional<double> validation_loss(const TrainingRun& run,
                                      const std::function<bool()>& should_stop) {
  const Config& config = run.config;
  log::ProgressBar bar("validate", run.valid_stream->size(), 0, log::is_terminal());
  EvaluateOptions options;
  options.window = config.data.tokens_per_sample;
  options.context_window = config.validation.context_window;
  options.batch_size = config.validation.batch_size > 0 ? config.validation.batch_size
                                                        : config.train.resolved_micro_batch_size();
  options.compute = ops::scalar_type(config.train.precision);
  options.first_input = run.tokenizer->first_input();
  options.on_progress = [&bar](std::int64_t done) { bar.update(done); };
  options.should_stop = should_stop;
  const EvaluateResult result = evaluate(*run.model, *run.valid_stream, options);
  return result.complete ? std::optional(result.nll()) : std::nullopt;
}

bool record_validation(TrainingState& state, double loss) {
  state.validated_step = state.step;
  const bool best = std::isfinite(loss) && (state.best_step < 0 || loss < state.best_valid_loss);
  if (best) {
    state.best_valid_loss = loss;
    state.best_step = state.step;
    state.validations_without_gain = 0;
  } else {
    ++state.validations_without_gain;
  }
  return best;
}

}  // namespace transnormer
