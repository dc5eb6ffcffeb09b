#include "train/trainer.h"

#include <memory>

#include "config/names.h"
#include "log/console.h"
#include "train/training_loop.h"
#include "train/training_run.h"
#include "util/signal.h"

namespace transnormer {
ExitStatus train(const TrainRequest& request) {
  const log::Level level = request.loaded.config.log.level;
  log::set_level(level);
  const std::unique_ptr<TrainingRun> run = set_up(request);
  if (run->already_ended) {
    log::set_level(log::Level::info);  // the one answer there is, whatever log.level asks for
    log::info(run->directory.path().string() + ": this run has ended: " + *run->already_ended +
              "; raise train.steps to go on");
    log::set_level(level);
    return ExitStatus::done;
  }
  install_signal_handlers();
  Events events = begin_writing(*run);
  return TrainingLoop(*run, events).run();
}

}  // namespace transnormer
