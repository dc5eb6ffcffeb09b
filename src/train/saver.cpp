#include "train/saver.h"

#include <exception>
#include <string>

#include "checkpoint/checkpoint.h"
#include "util/units.h"

namespace transnormer {
namespace {

// What LibTorch throws goes on with where it was thrown.
std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

}  // namespace

bool Saver::save() {
  TrainingState& state = run_.state;
  state.optimizer_updates = run_.optimizer.updates();
  state.loss_scale = run_.scaler.scale();
  state.scale_growth_count = run_.scaler.growth_count();
  try {
    const auto path =
        save_checkpoint(run_.directory.path(), {.config = run_.config,
                                                .model = *run_.model,
                                                .optimizer = run_.optimizer,
                                                .state = state,
                                                .tokenizer = *run_.tokenizer,
                                                .unigram_counts = run_.unigram_counts});
    if (run_.config.checkpoint.keep_best && state.best_step == state.step) {
      run_.directory.link_best(state.step);
    }
    run_.directory.remove_old_checkpoints(run_.config.checkpoint);
    events_.note(state.step, "saved", "saved " + path.string());
    return true;
  } catch (const std::exception& error) {  // no memory for a copy, too: none of it ends a training
    failed_ = true;
    events_.note(state.step, "save_failed",
                 std::string("the checkpoint of step ") + format_count(state.step) +
                     " could not be saved, training goes on: " + first_line(error.what()),
                 log::Level::error);
    return false;
  }
}

}  // namespace transnormer
