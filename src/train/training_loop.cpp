#include "train/training_loop.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "log/console.h"
#include "ops/device.h"
#include "optim/gradients.h"
#include "optim/schedule.h"
#include "train/ending.h"
#include "train/nonfinite.h"
#include "train/passes.h"
#include "train/validation.h"
#include "util/signal.h"
#include "util/units.h"

namespace transnormer {
namespace {

constexpr std::int64_t kHistogramSamples = 4096;

BatchLoader make_loader(const TrainingRun& run) {
  const Config& config = run.config;
  return BatchLoader(
      Samples(run.train_stream, config.data.tokens_per_sample, run.tokenizer->first_input()),
      {.global_batch_size = config.train.global_batch_size,
       .micro_batch_size = config.train.resolved_micro_batch_size(),
       .seed = static_cast<std::uint64_t>(config.train.seed),
       .first_update = run.state.step});
}

bool is_multiple(std::int64_t step, std::int64_t every) {
  return every > 0 && step % every == 0;
}

// A fork goes on from a checkpoint of another directory, and has none of its own yet.
bool is_saved(const TrainingRun& run) {
  const std::vector<std::int64_t> steps = run.directory.checkpoint_steps();
  return run.resumed && std::binary_search(steps.begin(), steps.end(), run.state.step);
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
      recorded_(*run.model),
      statistics_(run.optimizer.parameters()),
      saver_(run, events),
      meter_(run.state.elapsed_s),
      bar_("train", run.total_steps, run.state.step, log::is_terminal()),
      saved_step_(is_saved(run) ? run.state.step : -1) {}

ExitStatus TrainingLoop::run() {
  bool whole = finish_step();
  while (whole && !state_.finished) {
    whole = make_update() && finish_step();
  }
  return whole ? end() : stop(*stop_requested());
}

bool TrainingLoop::make_update() {
  meter_.begin_update();
  const std::vector<Batch> batches = loader_.next_update();
  const auto nll = forward_backward(batches);
  if (!nll) {
    return false;
  }
  Update update = measure(batches, *nll);
  if (is_to_be_applied(update)) {
    measure_statistics(update);
    clip_gradients(run_.optimizer.gradients(), global_norm(update.norms),
                   config_.optimizer.clip_norm);
    run_.optimizer.step(update.lr);
  }
  count(update);
  report(std::move(update));
  return true;
}

std::optional<at::Tensor> TrainingLoop::forward_backward(const std::vector<Batch>& batches) {
  run_.optimizer.zero_gradients();
  const bool was_recorded = recorded_.fault().empty();
  const auto nll =
      accumulate_gradients(*run_.model, batches,
                           {.compute = ops::scalar_type(config_.train.precision),
                            .activation_checkpointing = config_.train.activation_checkpointing,
                            .seed = static_cast<std::uint64_t>(config_.train.seed),
                            .update = state_.step,
                            .loss_scale = run_.scaler.scale(),
                            .should_stop = is_stop_requested,
                            .recorded = &recorded_});
  if (was_recorded && !recorded_.fault().empty()) {
    log::warn(
        "this model's passes cannot be recorded on the GPU, which costs small models speed: " +
        recorded_.fault());
  }
  if (nll) {
    run_.scaler.unscale(run_.optimizer.gradients());
  }
  return nll;
}

// Loss and norm come from the device together: the one wait of an update.
TrainingLoop::Update TrainingLoop::measure(const std::vector<Batch>& batches,
                                           const at::Tensor& nll) const {
  Update update;
  update.tokens = target_tokens(batches);
  update.lr = learning_rate(config_.schedule, config_.optimizer.lr, state_.step, run_.total_steps);
  update.norms = gradient_norms(run_.optimizer.gradients());
  const at::Tensor both = at::stack({nll, global_norm(update.norms)}).to(at::kCPU);
  update.nll = both[0].item<double>();
  update.grad_norm = both[1].item<double>();
  return update;
}

bool TrainingLoop::is_to_be_applied(const Update& update) {
  const std::int64_t step = state_.step + 1;
  try {
    const Verdict verdict =
        judge_update(update.nll, update.grad_norm, config_.train, run_.scaler, state_);
    if (verdict.fate == UpdateFate::applied) {
      return true;
    }
    const bool harmless = verdict.fate == UpdateFate::rescaled;
    events_.note(step, harmless ? "loss_scale_lowered" : "update_skipped",
                 "step " + format_count(step) + ": " + verdict.reason,
                 harmless ? log::Level::info : log::Level::warning);
    return false;
  } catch (const DivergedError&) {
    events_.note(step, "diverged", "stopped: training diverged at step " + format_count(step),
                 log::Level::error);
    throw;
  }
}

void TrainingLoop::measure_statistics(Update& update) {
  const std::vector<at::Tensor> gradients = run_.optimizer.gradients();
  const std::int64_t step = state_.step + 1;
  if (is_multiple(step, config_.log.grad_stats_every)) {
    update.statistics = statistics_.measure(gradients, update.norms, state_.gradient_moments);
  }
  if (is_multiple(step, config_.log.grad_histograms_every)) {
    update.histograms = statistics_.sample(gradients, kHistogramSamples);
  }
}

void TrainingLoop::count(const Update& update) {
  ++state_.step;
  state_.tokens += update.tokens;
  if (std::isfinite(update.nll)) {
    state_.loss_sum += update.nll;
    state_.loss_tokens += update.tokens;
  }
  meter_.end_update(update.tokens);
}

void TrainingLoop::report(Update update) {
  const double loss = state_.loss_sum / static_cast<double>(state_.loss_tokens);
  bar_.update(state_.step, "loss " + format_fixed(loss, 3) + "  " +
                               format_short(meter_.tokens_per_s()) + " tokens/s");
  const bool shown = is_multiple(state_.step, config_.log.every);
  if (!shown && update.statistics.empty() && update.histograms.empty()) {
    return;
  }
  log::TrainEvent event;
  event.step = state_.step;
  event.tokens = state_.tokens;
  event.loss = loss;
  event.lr = update.lr;
  event.grad_norm = update.grad_norm;
  event.tokens_per_s = meter_.tokens_per_s();
  event.elapsed_s = meter_.elapsed_s();
  event.epoch = static_cast<double>(state_.step) *
                static_cast<double>(config_.train.global_batch_size) /
                static_cast<double>(run_.samples);
  event.time_left_s = meter_.seconds_for(run_.total_steps - state_.step);
  event.data_wait_s = meter_.restart(loader_.waited_seconds());
  event.memory_bytes = used_memory_bytes(run_.device);
  if (run_.scaler.enabled()) {
    event.loss_scale = run_.scaler.scale();
  }
  event.skipped_updates = state_.skipped_updates;
  event.gradients = std::move(update.statistics);
  event.histograms = std::move(update.histograms);
  events_.emit(event, shown);
  state_.loss_sum = 0;
  state_.loss_tokens = 0;
}

bool TrainingLoop::finish_step() {
  bool improved = false;
  if (is_validation_due(run_)) {
    if (!validate()) {
      return false;
    }
    improved = state_.best_step == state_.step;
    saved_step_ = -1;
  }
  const auto reason = reason_to_end(config_, state_, run_.total_steps);
  state_.finished = reason.has_value();
  state_.finish_reason = reason.value_or("");
  const bool asked = take_save_request();
  const bool due = state_.step > 0 && is_multiple(state_.step, config_.checkpoint.every);
  if (asked || due || (improved && config_.checkpoint.keep_best) || state_.finished) {
    save();
  }
  return true;
}

bool TrainingLoop::validate() {
  const auto began = std::chrono::steady_clock::now();
  const auto loss = validation_loss(run_, is_stop_requested);
  if (!loss) {
    return false;
  }
  log::ValidEvent event;
  event.best = record_validation(state_, *loss);
  event.step = state_.step;
  event.tokens = state_.tokens;
  event.loss = *loss;
  event.elapsed_s = meter_.elapsed_s();
  event.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  events_.emit(event);
  return true;
}

void TrainingLoop::save() {
  if (saved_step_ == state_.step && !state_.finished) {
    return;
  }
  state_.elapsed_s = meter_.elapsed_s();
  if (saver_.save()) {
    saved_step_ = state_.step;
  }
}

ExitStatus TrainingLoop::stop(ExitStatus status) {
  bar_.finish();
  save();
  const bool saved = saved_step_ == state_.step;
  events_.note(state_.step, "interrupted",
               std::string("stopped by ") +
                   (status == ExitStatus::interrupted ? "SIGINT" : "SIGTERM") + " at step " +
                   format_count(state_.step) +
                   (saved ? "; the same command goes on from here" : "; nothing was saved"));
  return saved ? status : ExitStatus::save_failed;
}

ExitStatus TrainingLoop::end() {
  bar_.finish();
  events_.note(state_.step, "done",
               "done: " + state_.finish_reason + ", " + format_count(state_.tokens) +
                   " tokens seen in " + format_duration(meter_.elapsed_s()));
  return saver_.failed() ? ExitStatus::save_failed : ExitStatus::done;
}

}  // namespace transnormer
