#include "train/trainer.h"

#include <memory>
#include <string>

#include "config/names.h"
#include "log/console.h"
#include "train/begin_writing.h"
#include "train/divergence.h"
#include "train/ending.h"
#include "train/retry.h"
#include "train/training_loop.h"
#include "train/training_run.h"

namespace transnormer {
namespace {

// train.log asks about its run's directory, so it must not outlive it.
struct LogFileUntilTheEnd {
  LogFileUntilTheEnd() = default;
  ~LogFileUntilTheEnd() { log::close_file(); }
  LogFileUntilTheEnd(const LogFileUntilTheEnd&) = delete;
  LogFileUntilTheEnd& operator=(const LogFileUntilTheEnd&) = delete;
};

std::string way_to_go_on(const TrainingRun& run) {
  std::string keys;
  std::string sets;
  for (const std::string& key : keys_that_end(run.config, run.state, run.task->samples())) {
    keys += (keys.empty() ? "" : " and ") + key;
    sets += " --set " + key + "=..";
  }
  return "; raise " + keys + " to go on: train " + run.directory.path().string() + sets;
}

}  // namespace

ExitStatus train(const TrainRequest& request) {
  return train(request, dist::alone());
}

ExitStatus train(const TrainRequest& request, dist::World& world) {
  const log::Level level = request.loaded.config.log.level;
  log::set_level(level);
  const std::unique_ptr<TrainingRun> run = set_up(request, world);
  if (run->already_ended) {
    for (const std::string& change : run->changes) {  // one of them may have ended it
      log::info(change);
    }
    log::set_level(log::Level::info);  // the one answer there is, whatever log.level asks for
    log::info(run->directory.path().string() + ": this run has ended: " + *run->already_ended +
              way_to_go_on(*run));
    log::set_level(level);
    return ExitStatus::done;
  }
  return train(*run);
}

ExitStatus train(TrainingRun& run) {
  const LogFileUntilTheEnd log_file;
  for (;;) {
    Events events =
        run.world.is_first() ? begin_writing(run) : Events(log::make_console_sink(), {});
    try {
      return TrainingLoop(run, events).run();
    } catch (const Divergence& divergence) {
      if (!may_go_back(run)) {
        throw;
      }
      go_back(run, divergence.facts());
    }
  }
}

}  // namespace transnormer
