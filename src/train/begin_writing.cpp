#include "train/begin_writing.h"

#include <filesystem>
#include <string>
#include <utility>

#include "checkpoint/layout.h"
#include "checkpoint/named_run.h"
#include "config/load.h"
#include "config/names.h"
#include "log/console.h"
#include "train/space.h"
#include "util/error.h"
#include "util/file.h"
#include "util/units.h"

namespace transnormer {
namespace fs = std::filesystem;
namespace {

constexpr const char* kTensorboardDirectory = "tensorboard";

std::int64_t count_parameters(const TransNormer& model) {
  std::int64_t sum = 0;
  for (const NamedTensor& parameter : named_tensors(model)) {
    sum += parameter.tensor.numel();
  }
  return sum;
}

std::string model_summary(const TrainingRun& run) {
  const ModelConfig& model = run.config.model;
  return std::string("model: ") + to_string(model.variant) + ", " + format_count(model.layers) +
         " layers, dim " + format_count(model.dim) + ", " + format_count(model.heads) +
         " heads, vocabulary " + format_count(run.model->size().vocab_size) + ", " +
         format_count(count_parameters(*run.model)) + " parameters";
}

std::string work_summary(const TrainingRun& run) {
  const TrainConfig& train = run.config.train;
  return "training: " + format_count(run.total_steps) + " updates of " +
         format_count(train.global_batch_size) + " samples (" +
         format_count(micro_batch_size(run.config.train, run.world)) + " a pass) on " +
         run.state.device + ", " + to_string(train.precision) + ", " +
         format_count(run.state.threads) + (run.state.threads == 1 ? " thread" : " threads");
}

// Where a run has its files, those of the same name that no run made must stay what they are. In
// the directory of the checkpoint that it goes on from, they are the run's; a config that is
// damaged is set aside there.
void require_no_stranger(const TrainingRun& run) {
  const fs::path& directory = run.directory.path();
  const auto refuse = [&directory](const char* file) {
    throw UserError(
        (directory / file).string() +
        ": is no run's file, or a damaged one, and would be overwritten; choose another "
        "--run-dir, or remove it");
  };
  const bool has_checkpoint = run.resumed && !run.forked_from;
  const RunConfigFile config = look_at_config(directory);
  if (config == RunConfigFile::other || (config == RunConfigFile::damaged && !has_checkpoint)) {
    refuse(kConfigFile);
  }
  for (const char* name : {kLogFile, kMetricsFile}) {
    if (config == RunConfigFile::missing && !has_checkpoint && has_entry(directory / name)) {
      refuse(name);
    }
  }
}

void write_config(TrainingRun& run) {
  const fs::path file = run.directory.path() / kConfigFile;
  if (look_at_config(run.directory.path()) == RunConfigFile::damaged) {
    run.warnings.push_back("the damaged " + file.string() + " is set aside as " +
                           run.directory.set_aside_config().filename().string());
  }
  write_file_atomically(file, config_to_json(run.config));
}

// What a former run, or a former life of this one, wrote about steps that are now made anew.
std::int64_t cut_back(TrainingRun& run) {
  const std::int64_t keep = run.resumed ? run.state.step : -1;
  run.directory.set_aside(run.damaged);
  run.directory.remove_checkpoints_after(run.state.step);
  run.directory.link(run.config.checkpoint, run.state.best_step);
  return log::cut_metrics_after(run.directory.path() / kMetricsFile, keep);
}

Events open_sinks(const TrainingRun& run, const log::StillOurs& still_ours) {
  const fs::path& directory = run.directory.path();
  std::vector<std::unique_ptr<log::EventSink>> files;
  files.push_back(log::make_jsonl_sink(directory / kMetricsFile, still_ours));
  if (run.config.log.tensorboard) {
    files.push_back(
        log::make_tensorboard_sink(directory / kTensorboardDirectory, run.state.step, still_ours));
  }
  return {log::make_console_sink(), std::move(files)};
}

}  // namespace

Events begin_writing(TrainingRun& run) {
  const fs::path& directory = run.directory.path();
  require_space(run);
  require_no_stranger(run);
  run.directory.require_ours();  // text may have been prepared for hours
  run.directory.keep();
  write_config(run);
  const log::StillOurs still_ours = [&run] { return run.directory.is_ours(); };
  log::open_file(directory / kLogFile, still_ours);
  const std::int64_t cut = cut_back(run);
  Events events = open_sinks(run, still_ours);
  for (const std::string& change : run.changes) {
    log::info(change);
  }
  for (const std::string& warning : run.warnings) {
    log::warn(warning);
  }
  log::info(model_summary(run));
  log::info("data: " + run.task->describe_data());
  if (run.world.size() > 1) {
    log::info(run.world.describe());
  }
  log::info(work_summary(run));
  const std::int64_t step = run.state.step;
  events.note(step, run.resumed ? "resumed" : "started",
              run.origin + " in run directory " + directory.string());
  for (const log::NoteEvent& note : run.notes) {
    events.note(step, note.name, note.message, note.level);
  }
  if (cut > 0) {
    events.note(step, "metrics_cut",
                "removed " + format_count(cut) + " lines of " + kMetricsFile + " after step " +
                    format_count(step));
  }
  return events;
}

}  // namespace transnormer
