#include "train/validation.h"

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

std::optional<std::string> note_validation_kind(TrainingState& state, const ValidationKind& kind) {
  const std::string digest = std::exchange(state.valid_data_digest, kind.data_digest);
  const std::int64_t window = std::exchange(state.validation_context_window, kind.context_window);
  std::string changed;
  if (!digest.empty() && digest != kind.data_digest) {
    changed = "data.valid holds another text";
  } else if (window >= 0 && window != kind.context_window) {
    changed = "validation.context_window was " + format_count(window) + " and is " +
              format_count(kind.context_window);
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
  state.validations_without_gain = 0;
  return changed + ": validation starts anew, " + best + " is the best no longer";
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
