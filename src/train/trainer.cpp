#include "train/trainer.h"

#include <memory>

#include "config/names.h"
#include "log/console.h"
#include "train/training_loop.h"
#include "train/training_run.h"
#include "util/signal.h"

namespace transnormer {
namespace {

log::Level console_level(LogLevel level) {
  switch (level) {
    case LogLevel::debug:
      return log::Level::debug;
    case LogLevel::info:
      return log::Level::info;
    case LogLevel::warning:
      return log::Level::warning;
    case LogLevel::error:
      return log::Level::error;
  }
  return log::Level::info;
}

}  // namespace

ExitStatus train(const TrainRequest& request) {
  log::set_level(console_level(request.loaded.config.log.level));
  const std::unique_ptr<TrainingRun> run = set_up(request);
  if (run->already_ended) {
    log::info(run->directory.path().string() + ": this run has ended: " + *run->already_ended +
              "; raise train.steps to go on");
    return ExitStatus::done;
  }
  install_signal_handlers();
  Events events = begin_writing(*run);
  return TrainingLoop(*run, events).run();
}

}  // namespace transnormer
