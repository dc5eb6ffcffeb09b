#include "train/training_loop.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <ratio>
#include <utility>

#include "log/console.h"
#include "model/weights.h"
#include "ops/runtime/device.h"
#include "ops/runtime/device_memory.h"
#include "optim/schedule.h"
#include "train/divergence.h"
#include "train/ending.h"
#include "train/prompts.h"
#include "train/retry.h"
#include "train/soundness.h"
#include "train/validation.h"
#include "util/signal.h"
#include "util/units.h"

namespace transnormer {
namespace {

constexpr std::int64_t kHistogramSamples = 4096;
// For the save in flight when another rank is lost.
constexpr std::chrono::seconds kLastWords{7};

BatchLoader make_loader(const TrainingRun& run) {
  const Config& config = run.config;
  return BatchLoader(run.task, {.global_batch_size = config.train.global_batch_size,
                                .micro_batch_size = run.micro_batch.size,
                                .shares = run.world.samples().size(),
                                .share = run.world.samples().rank(),
                                .parts = run.world.sequence().size(),
                                .part = run.world.sequence().rank(),
                                .seed = static_cast<std::uint64_t>(config.train.seed),
                                .first_update = run.state.step,
                                .samples_passed_over = run.state.samples_passed_over,
                                .equal_rows = GraphedPass::possible(run.device)});
}

UpdateStep make_step(TrainingRun& run) {
  const Config& config = run.config;
  return UpdateStep(
      [&run](TransNormer& model, const Tensors& batch, const ForwardContext& context,
             const at::Tensor& scale) { return run.task->loss(model, batch, context, scale); },
      *run.model, *run.optimizer, run.scaler, run.world,
      {.compute = ops::scalar_type(config.train.precision),
       .activation_checkpointing = config.train.activation_checkpointing,
       .seed = static_cast<std::uint64_t>(config.train.seed),
       .clip_norm = config.optimizer.clip_norm,
       .distributed = config.distributed});
}

bool is_multiple(std::int64_t step, std::int64_t every) {
  return every > 0 && step % every == 0;
}

// A fork goes on from a checkpoint of another directory, and has none of its own yet.
bool is_saved(const TrainingRun& run) {
  if (!run.resumed) {
    return false;
  }
  const std::vector<std::int64_t> steps = run.directory.checkpoint_steps();
  return std::binary_search(steps.begin(), steps.end(), run.state.step);
}

bool is_stop_requested() {
  return stop_requested().has_value();
}

}  // namespace

TrainingLoop::TrainingLoop(TrainingRun& run, Events& events)
    : run_(run),
      events_(events),
      config_(run.config),
      state_(run.state),
      loader_(make_loader(run)),
      step_(make_step(run)),
      statistics_(run.optimizer->parameters(), parameter_groups(*run.model)),
      saver_(run, events),
      meter_(run.state.elapsed_s),
      bar_("train", run.total_steps, run.state.step, log::draws_bars()),
      saved_step_(run.world.word_of_first([&] { return is_saved(run) ? "saved" : "new"; }) ==
                          "saved"
                      ? run.state.step
                      : -1),
      applied_step_(run.state.step),
      save_due_(run.forked_from.has_value()) {  // from then on it goes on by itself
  if (!run_.training_began) {  // after a divergence the clock goes on
    run_.training_began = std::chrono::steady_clock::now();
  }
  run_.world.set_last_words([this] { (void)saver_.settle(kLastWords); });
}

TrainingLoop::~TrainingLoop() {
  run_.world.set_last_words({});
}

ExitStatus TrainingLoop::run() {
  try {
    if (go_on()) {
      return end();
    }
    return stop_ ? stop(*stop_) : end_by_time();
  } catch (const DivergedError&) {
    throw;
  } catch (const dist::CollectiveError& error) {  // while the save in flight can be waited for
    run_.world.end_by_collective(error.what());
  } catch (const std::exception&) {  // data that can no longer be read, no memory
    bar_.finish();
    events_.note(state_.step, "failed",
                 "training stops at step " + format_count(state_.step) + outcome_of_fault(),
                 log::Level::error);
    throw;
  }
}

bool TrainingLoop::go_on() {
  bool whole = finish_step();
  while (whole && !state_.finished) {
    whole = make_update() && finish_step();
  }
  return whole;
}

bool TrainingLoop::make_update() {
  meter_.begin_update(run_.world.all().waited_seconds());
  auto measured = step_.measure(loader_.next_update(), state_.step, is_stop_requested,
                                [this] { return wishes(); });
  if (!measured) {
    agree(wishes());
    return false;
  }
  agree(measured->wishes);
  Update update;
  update.measured = std::move(*measured);
  update.lr = learning_rate(config_.schedule, config_.optimizer.lr, state_.step, run_.total_steps);
  measure_statistics(update);
  is_amid_change_ = true;
  if (is_to_be_applied(update)) {
    std::swap(state_.gradient_moments, update.moments);
    step_.apply(update.measured, update.lr);
    if (run_.average) {
      run_.average->update();
    }
    applied_step_ = state_.step + 1;
  }
  count(update);
  is_amid_change_ = false;
  report(update);
  judge(update);
  return !stop_ && !ends_by_time();
}

std::vector<double> TrainingLoop::wishes() const {
  const auto stop = stop_requested();
  const std::chrono::duration<double, std::ratio<3600>> hours =
      std::chrono::steady_clock::now() - *run_.training_began;
  const double limit = config_.train.max_hours;
  return {stop == ExitStatus::interrupted ? 1.0 : 0.0, stop == ExitStatus::terminated ? 1.0 : 0.0,
          take_save_request() ? 1.0 : 0.0, limit > 0 && hours.count() >= limit ? 1.0 : 0.0};
}

// `wishes`: summed over the ranks, so that all do the same.
void TrainingLoop::agree(const std::vector<double>& wishes) {
  if (wishes[0] > 0 || wishes[1] > 0) {
    stop_ = wishes[0] > 0 ? ExitStatus::interrupted : ExitStatus::terminated;
  }
  save_is_asked_ = save_is_asked_ || wishes[2] > 0;
  time_is_over_ = time_is_over_ || wishes[3] > 0;
}

bool TrainingLoop::is_to_be_applied(const Update& update) {
  const std::int64_t step = state_.step + 1;
  const Verdict verdict = step_.judge(update.measured, config_.train, state_);
  switch (verdict.fate) {
    case UpdateFate::applied:
      return true;
    case UpdateFate::rescaled:
      events_.note(step, "loss_scale_lowered",
                   "step " + format_count(step) + ": " + verdict.reason);
      break;
    case UpdateFate::skipped:
      events_.note(step, "update_skipped", "step " + format_count(step) + ": " + verdict.reason,
                   log::Level::warning);
      break;
    case UpdateFate::diverged:
      // The last weights that were made may be what does not give finite numbers.
      diverge("update " + format_count(step), verdict.reason, applied_step_ - 1);
  }
  return false;
}

void TrainingLoop::measure_statistics(Update& update) {
  update.moments = state_.gradient_moments;
  const UpdateStep::Measured& measured = update.measured;
  if (!std::isfinite(measured.sums.loss) || !std::isfinite(measured.grad_norm)) {
    return;
  }
  const std::int64_t step = state_.step + 1;
  if (is_multiple(step, config_.log.grad_stats_every) ||
      is_multiple(step, config_.log.grad_histograms_every)) {
    step_.make_gradients_whole();
  }
  const std::vector<at::Tensor> gradients = run_.optimizer->gradients();
  if (is_multiple(step, config_.log.grad_stats_every)) {
    update.statistics = statistics_.measure(gradients, measured.norms, update.moments);
  }
  if (is_multiple(step, config_.log.grad_histograms_every)) {
    update.histograms = statistics_.sample(gradients, kHistogramSamples);
  }
}

void TrainingLoop::count(const Update& update) {
  const Sums& sums = update.measured.sums;
  ++state_.step;
  state_.tokens += sums.count;
  if (std::isfinite(sums.loss)) {
    state_.loss_sum += sums.loss;
    state_.loss_tokens += sums.count;
    state_.metric_sums.resize(sums.metrics.size());
    std::transform(sums.metrics.begin(), sums.metrics.end(), state_.metric_sums.begin(),
                   state_.metric_sums.begin(), std::plus<>());
  }
  meter_.end_update(sums.count, run_.world.all().waited_seconds());
}

Report TrainingLoop::report_of_sums() const {
  Sums sums{state_.loss_sum, state_.loss_tokens, state_.metric_sums};
  sums.metrics.resize(run_.task->metrics().size());  // none yet where no update was finite
  return run_.task->report(sums);
}

void TrainingLoop::judge(const Update& update) {
  const std::optional<double> guessing = run_.task->loss_of_guessing(*run_.model);
  const Sums& sums = update.measured.sums;
  if (!guessing || sums.count == 0) {
    return;
  }
  const double loss = sums.loss / static_cast<double>(sums.count);
  if (const auto rise = judge_loss(loss, *guessing, state_)) {
    diverge("step " + format_count(state_.step),
            "the mean loss of " + format_count(kLossWindow) + " updates is " +
                format_fixed(rise->now, 3) + ", after " + format_fixed(rise->before, 3) +
                " in those before, where guessing gives " + format_fixed(*guessing, 3),
            state_.low_loss_step);
  }
}

void TrainingLoop::diverge(const std::string& where, const std::string& why,
                           std::int64_t sound_until) {
  bar_.finish();
  wait_for_save();
  events_.note(state_.step, "diverged",
               (may_go_back(run_) ? "" : "stopped: ") + ("training diverged at " + where),
               log::Level::error);
  run_.has_losses = has_losses();
  throw Divergence({.summary = "training diverged at " + where + ": " + why,
                    .sound_until = sound_until,
                    .updates = state_.step + (is_amid_change_ ? 1 : 0)},
                   advice_after_divergence(run_, sound_until));
}

// Patience is judged after validation, and the train event comes before.
bool TrainingLoop::may_end_here() const {
  const std::int64_t patience = config_.validation.patience;
  return state_.step == run_.total_steps ||
         (patience > 0 && state_.validations_without_gain + 1 >= patience &&
          (validation_due_ || is_validation_due(run_)));
}

void TrainingLoop::report(Update update) {
  Report report = report_of_sums();
  bar_.update(state_.step, "loss " + format_fixed(report.loss, 3) + "  " +
                               format_short(meter_.tokens_per_s()) + " tokens/s");
  const bool due = is_multiple(state_.step, config_.log.every);
  const bool shown = due || (config_.log.every > 0 && may_end_here());
  const bool regular = due || !update.statistics.empty() || !update.histograms.empty();
  if (!shown && !regular) {
    return;
  }
  log::TrainEvent event;
  event.step = state_.step;
  event.tokens = state_.tokens;
  event.loss = report.loss;
  event.figures = std::move(report.figures);
  event.lr = update.lr;
  event.grad_norm = update.measured.grad_norm;
  event.tokens_per_s = meter_.tokens_per_s();
  event.elapsed_s = meter_.elapsed_s();
  event.epoch = static_cast<double>(state_.step * config_.train.global_batch_size +
                                    state_.samples_passed_over) /
                static_cast<double>(run_.task->samples());
  event.time_left_s = meter_.seconds_for(run_.total_steps - state_.step);
  if (run_.world.size() > 1) {
    event.ranks_wait_share = meter_.ranks_wait_share();
  }
  event.data_wait_s = meter_.restart(loader_.waited_seconds());
  event.memory_bytes = ops::used_memory_bytes(run_.device);
  if (run_.scaler.enabled()) {
    event.loss_scale = run_.scaler.scale();
  }
  event.skipped_updates = state_.skipped_updates;
  event.gradients = std::move(update.statistics);
  event.histograms = std::move(update.histograms);
  events_.emit(event, shown);
  if (regular) {  // the events to come are the same whether or not this step was the last
    state_.loss_sum = 0;
    state_.loss_tokens = 0;
    state_.metric_sums.clear();
  }
}

bool TrainingLoop::note_what_is_due() {
  const bool validation = is_validation_due(run_);
  // Several ranks have asked each other in the update.
  const bool asked_now = run_.world.size() == 1 && take_save_request();
  const bool asked = std::exchange(save_is_asked_, false) || asked_now;
  const bool save = asked || is_multiple(state_.step, config_.checkpoint.every);
  validation_due_ = validation_due_ || validation;
  save_due_ = save_due_ || save;
  return validation || save;
}

bool TrainingLoop::finish_step() {
  saver_.poll();
  if (state_.step == 0) {
    return true;  // there is nothing to save yet: a request waits for the first update
  }
  const bool is_new = note_what_is_due();
  if (!validation_due_ && !save_due_ && !reason_to_end(config_, state_, run_.total_steps)) {
    return true;
  }
  if (const auto fault = fault_of_state(run_)) {
    wait_for_a_sound_state(*fault, is_new);
    return true;
  }
  if (validation_due_ && !validate()) {
    return false;
  }
  const auto reason = reason_to_end(config_, state_, run_.total_steps);
  state_.finished = reason.has_value();
  state_.finish_reason = reason.value_or("");
  const bool is_best = config_.checkpoint.keep_best && state_.best_step == state_.step;
  if (save_due_ || is_best || state_.finished) {
    save();
    save_due_ = false;
  }
  return true;
}

void TrainingLoop::wait_for_a_sound_state(const std::string& fault, bool tell) {
  const std::string step = "step " + format_count(state_.step);
  if (reason_to_end(config_, state_, run_.total_steps)) {
    diverge(step, "training ends here, and " + fault, applied_step_ - 1);
  }
  if (tell) {
    events_.note(state_.step, "save_postponed",
                 step + ": " + fault + ", so that nothing is validated or saved before a sound " +
                     "state is reached again",
                 log::Level::warning);
  }
}

bool TrainingLoop::validate() {
  const auto began = std::chrono::steady_clock::now();
  auto report = transnormer::validate(run_, is_stop_requested);
  std::optional<Report> of_average;
  if (report && run_.average) {
    of_average = validate_average(run_, is_stop_requested);
  }
  if (!report || (run_.average && !of_average)) {
    std::vector<double> asked = wishes();
    run_.world.all().sum(asked);
    agree(asked);
    return false;
  }
  log::ValidEvent event;
  event.best = record_validation(state_, *run_.task, *report);
  event.step = state_.step;
  event.tokens = state_.tokens;
  event.loss = report->loss;
  event.figures = std::move(report->figures);
  if (of_average) {
    event.figures.emplace_back("ema_loss", of_average->loss);
    for (const auto& [name, value] : of_average->figures) {
      event.figures.emplace_back("ema_" + name, value);
    }
  }
  event.elapsed_s = meter_.elapsed_s();
  event.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  events_.emit(event);
  validation_due_ = false;
  saved_step_ = -1;
  if (!config_.validation.prompts.empty()) {
    wait_for_first([this] {
      continue_prompts(run_, events_, is_stop_requested);
      return "continued";
    });
  }
  return true;
}

void TrainingLoop::save() {
  if (saved_step_ == state_.step && !state_.finished) {
    return;
  }
  state_.elapsed_s = meter_.elapsed_s();
  wait_for_save();
  require_equal_weights(run_);
  saver_.save();
  wait_for_first([] { return "begun"; });
  saved_step_ = state_.step;
}

// A disk may take longer than any collective; a stop is what is being carried out.
std::string TrainingLoop::wait_for_first(const std::function<std::string()>& word) {
  return run_.world.word_of_first(word, dist::Stops::ignored);
}

void TrainingLoop::wait_for_save() {
  if (wait_for_first([this] { return saver_.wait() ? "saved" : "failed"; }) == "failed") {
    saved_step_ = -1;
  }
}

std::string TrainingLoop::save_and_tell() {
  wait_for_save();
  const auto fault = fault_of_state(run_);
  if (!fault) {
    save();
    wait_for_save();
    if (saved_step_ == state_.step) {
      return "; " + run_.way_to_go_on + " goes on from here";
    }
  }
  const auto before = newest_checkpoint(run_, state_.step);
  return "; nothing was saved" + (fault ? ", since " + *fault : "") +
         (before ? "; " + run_.way_to_go_on + " goes on from step " + format_count(*before) : "");
}

// A GPU that has failed may not even give its weights back.
std::string TrainingLoop::outcome_of_fault() {
  if (is_amid_change_ || run_.world.size() > 1) {  // other ranks may not have this fault
    (void)saver_.wait();
    return "; nothing was saved";
  }
  try {
    return save_and_tell() + ", once what stops it is seen to";
  } catch (const std::exception& error) {
    return std::string("; nothing was saved, since ") + first_line(error.what());
  }
}

ExitStatus TrainingLoop::stop(ExitStatus status) {
  bar_.finish();
  const std::string outcome = save_and_tell();
  events_.note(state_.step, "interrupted",
               std::string("stopped by ") +
                   (status == ExitStatus::interrupted ? "SIGINT" : "SIGTERM") + " at step " +
                   format_count(state_.step) + outcome);
  const bool could_save = saved_step_ == state_.step || fault_of_state(run_);
  return could_save ? status : ExitStatus::save_failed;
}

// What is due at this step, such as a validation, is left to the next start.
bool TrainingLoop::ends_by_time() const {
  return time_is_over_ && state_.step < run_.total_steps && !fault_of_state(run_);
}

ExitStatus TrainingLoop::end_by_time() {
  bar_.finish();
  const std::string outcome = save_and_tell();
  events_.note(state_.step, "time_limit",
               "train.max_hours, " + format_significant(config_.train.max_hours) +
                   ", is over: stopped at step " + format_count(state_.step) + outcome);
  return saved_step_ != state_.step || has_losses() ? ExitStatus::save_failed : ExitStatus::done;
}

ExitStatus TrainingLoop::end() {
  bar_.finish();
  wait_for_save();
  const std::optional<double> guessing = run_.task->loss_of_guessing(*run_.model);
  if (guessing && is_loss_high(*guessing, state_)) {
    events_.note(state_.step, "loss_high",
                 "the loss of the last updates is more than 3 times that of guessing; try a lower "
                 "optimizer.lr or a longer schedule.warmup_steps",
                 log::Level::warning);
  }
  events_.note(state_.step, "done",
               "done: " + state_.finish_reason + ", " + format_count(state_.tokens) +
                   " tokens seen in " + format_duration(meter_.elapsed_s()));
  return has_losses() ? ExitStatus::save_failed : ExitStatus::done;
}

bool TrainingLoop::has_losses() const {
  return run_.has_losses || saver_.failed() || events_.have_lost_records();
}

}  // namespace transnormer
