#include "train/saver.h"

#include <exception>
#include <filesystem>
#include <string>

#include "checkpoint/checkpoint.h"
#include "checkpoint/save.h"
#include "log/console.h"
#include "train/divergence.h"
#include "util/error.h"
#include "util/units.h"

namespace transnormer {

bool Saver::save() {
  TrainingState& state = run_.state;
  state.optimizer_updates = run_.optimizer->updates();
  state.loss_scale = run_.scaler.scale();
  state.scale_growth_count = run_.scaler.growth_count();
  std::filesystem::path path;
  try {
    path = write();
  } catch (const std::exception& error) {  // no memory for a copy, too: none of it ends a training
    failed_ = true;
    events_.note(state.step, "save_failed",
                 std::string("the checkpoint of step ") + format_count(state.step) +
                     " could not be saved, training goes on: " + first_line(error.what()),
                 log::Level::error);
    return false;
  }
  tidy();
  events_.note(state.step, "saved", "saved " + path.string());
  return true;
}

std::filesystem::path Saver::write() {
  const auto still_ours = [this](SaveStage stage) {
    if (stage == SaveStage::manifest_written) {
      run_.directory.require_ours();
    }
  };
  run_.directory.require_ours();
  return save_checkpoint(run_.directory.path(),
                         {.config = run_.config,
                          .model = *run_.model,
                          .optimizer = *run_.optimizer,
                          .state = run_.state,
                          .tokenizer = *run_.task->tokenizer(),
                          .unigram_counts = run_.unigram_counts},
                         still_ours);
}

// The checkpoint is safe; what goes wrong here costs room, or a link.
void Saver::tidy() {
  const CheckpointConfig& config = run_.config.checkpoint;
  const TrainingState& state = run_.state;
  const bool may_diverge = is_loss_high(run_.model->size().vocab_size, state);
  try {
    run_.directory.link(config, state.best_step);
    run_.directory.remove_old_checkpoints(config, state.best_step,
                                          may_diverge ? state.low_loss_step : -1);
  } catch (const UserError& error) {
    log::warn(error.what());
  }
}

}  // namespace transnormer
