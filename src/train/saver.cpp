#include "train/saver.h"

#include "checkpoint/checkpoint.h"
#include "util/error.h"
#include "util/units.h"

namespace transnormer {

bool Saver::save() {
  TrainingState& state = run_.state;
  state.optimizer_updates = run_.optimizer.updates();
  state.loss_scale = run_.scaler.scale();
  state.scale_growth_count = run_.scaler.growth_count();
  events_.flush();
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
  } catch (const WriteError& error) {
    failed_ = true;
    events_.note(state.step, "save_failed",
                 std::string("the checkpoint of step ") + format_count(state.step) +
                     " could not be saved, training goes on: " + error.what(),
                 log::Level::error);
    return false;
  }
}

}  // namespace transnormer
