#include "train/saver.h"

#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "checkpoint/checkpoint.h"
#include "log/console.h"
#include "train/divergence.h"
#include "util/error.h"
#include "util/shown_path.h"
#include "util/units.h"

namespace transnormer {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point began) {
  return std::chrono::duration<double>(Clock::now() - began).count();
}

std::string in_seconds(double seconds) {
  return format_fixed(seconds, 2) + " s";
}

// Where the loss is high, the newest checkpoints may be of a training that is about to diverge.
std::int64_t last_sound_step(const TrainingRun& run) {
  const std::optional<double> guessing = run.task->loss_of_guessing(*run.model);
  return guessing && is_loss_high(*guessing, run.state) ? run.state.low_loss_step : -1;
}

std::vector<NamedTensor> average_of(const TrainingRun& run) {
  return run.average ? run.average->named(named_tensors(*run.model)) : std::vector<NamedTensor>{};
}

}  // namespace

Saver::Saver(TrainingRun& run, Events& events, std::function<void(SaveStage)> on_stage)
    : run_(run),
      events_(events),
      on_stage_(std::move(on_stage)),
      in_background_(run.saves_in_background && run.world.is_first()) {
  if (run.world.is_first() && is_shared()) {
    make_optimizer_room();  // without it nothing could be saved
  }
  if (in_background_) {
    (void)begin([this] { prepare_snapshot(); });
  }
}

Saver::~Saver() {
  join();
}

bool Saver::begin(const std::function<void()>& work) {
  try {
    thread_ = std::thread(work);
    return true;
  } catch (const std::system_error&) {
    return false;
  }
}

void Saver::join() {
  if (thread_.joinable()) {
    thread_.join();
  }
}

// Only what the tensors look like is read of them. Where this fails, so does the first copy.
void Saver::prepare_snapshot() {
  try {
    snapshot_.model = make_room(named_tensors(*run_.model));
    snapshot_.average = make_room(average_of(run_));
    make_optimizer_room();
  } catch (const std::exception&) {  // the first save tells
  }
}

void Saver::save() {
  const auto began = Clock::now();
  (void)wait();
  TrainingState& state = run_.state;
  state.optimizer_updates = run_.optimizer->updates();
  state.loss_scale = run_.scaler.scale();
  state.scale_growth_count = run_.scaler.growth_count();
  if (!run_.world.is_first()) {
    give_state();
    return;
  }
  take_snapshot();
  outcome_ = {};
  told_ = false;
  {
    const std::lock_guard lock(mutex_);
    is_writing_ = true;
  }
  if (!in_background_ || !begin([this] { write(); })) {
    write();
  }
  waited_s_ = seconds_since(began);
  poll();
}

void Saver::give_state() {
  if (is_shared()) {
    run_.optimizer->copy_state_to({});
  }
}

bool Saver::is_shared() const {
  return run_.optimizer->shared_by().size() > 1;
}

// The memory is found before anything is asked of other ranks, which cannot be asked twice.
void Saver::take_snapshot() {
  const std::vector<NamedTensor> model = named_tensors(*run_.model);
  const std::vector<NamedTensor> average = average_of(run_);
  if (in_background_) {
    try {
      copy_tensors(model, snapshot_.model);
      copy_tensors(average, snapshot_.average);
      make_optimizer_room();
    } catch (const std::exception& error) {
      in_background_ = false;
      log::warn(
          "no copy of weights and optimizer could be made, so training waits while they are "
          "written: " +
          first_line(error.what()));
    }
  }
  if (!in_background_) {
    snapshot_.model = model;
    snapshot_.average = average;
  }
  // What is spread over ranks is whole in a copy only.
  if (in_background_ || is_shared()) {
    run_.optimizer->copy_state_to(optimizer_room_);
    snapshot_.optimizer = run_.optimizer->named_state_of(optimizer_room_);
  } else {
    snapshot_.optimizer = run_.optimizer->named_state();
  }
  snapshot_.state = run_.state;
  sound_step_ = last_sound_step(run_);
}

void Saver::make_optimizer_room() {
  if (optimizer_room_.empty()) {
    optimizer_room_ = run_.optimizer->room_for_state();
  }
}

void Saver::write() {
  const auto began = Clock::now();
  const auto on_stage = [this](SaveStage stage) {
    if (stage == SaveStage::manifest_written) {
      events_.flush();
      run_.directory.require_ours();
    }
    if (on_stage_) {
      on_stage_(stage);
    }
  };
  try {
    run_.directory.require_ours();
    outcome_.path = save_checkpoint(run_.directory.path(),
                                    {.config = run_.config,
                                     .model = snapshot_.model,
                                     .optimizer = snapshot_.optimizer,
                                     .state = snapshot_.state,
                                     .tokenizer = *run_.task->tokenizer(),
                                     .unigram_counts = run_.unigram_counts,
                                     .average = snapshot_.average},
                                    on_stage);
    tidy();
  } catch (...) {  // no memory, too: none of it ends a training
    outcome_.fault = std::current_exception();
  }
  outcome_.seconds = seconds_since(began);
  const std::lock_guard lock(mutex_);
  is_writing_ = false;
  done_.notify_all();
}

// The checkpoint is safe; what goes wrong here costs room, or a link.
void Saver::tidy() {
  const CheckpointConfig& config = run_.config.checkpoint;
  const std::int64_t best = snapshot_.state.best_step;
  try {
    run_.directory.link(config, best);
    run_.directory.remove_old_checkpoints(config, best, sound_step_);
  } catch (const std::exception& error) {
    log::warn(first_line(error.what()));
  }
}

void Saver::poll() {
  if (!told_ && settle(std::chrono::milliseconds(0))) {
    report();
  }
}

bool Saver::wait() {
  join();
  if (!told_) {
    report();
  }
  return !outcome_.fault;
}

bool Saver::settle(std::chrono::milliseconds most) const {
  std::unique_lock lock(mutex_);
  return done_.wait_for(lock, most, [this] { return !is_writing_; });
}

void Saver::report() {
  join();
  told_ = true;
  const std::int64_t step = snapshot_.state.step;
  if (!outcome_.fault) {
    events_.note(step, "saved",
                 "saved " + shown_path(outcome_.path, 40) + " in " + in_seconds(outcome_.seconds) +
                     ", training waited " + in_seconds(waited_s_));
    return;
  }
  failed_ = true;
  try {
    std::rethrow_exception(outcome_.fault);
  } catch (const std::exception& error) {
    events_.note(step, "save_failed",
                 std::string("the checkpoint of step ") + format_count(step) +
                     " could not be saved, training goes on: " + first_line(error.what()),
                 log::Level::error);
  }
}

}  // namespace transnormer
