#include "train/begin_writing.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "checkpoint/layout.h"
#include "checkpoint/named_run.h"
#include "config/listing.h"
#include "config/load.h"
#include "config/markdown.h"
#include "config/names.h"
#include "log/console.h"
#include "log/hparams.h"
#include "train/space.h"
#include "util/error.h"
#include "util/file.h"
#include "util/shown_path.h"
#include "util/units.h"

namespace transnormer {
namespace fs = std::filesystem;
namespace {

constexpr const char* kTensorboardDirectory = "tensorboard";
constexpr const char* kHparamsDirectory = "hparams";

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
         format_count(train.global_batch_size) + " samples (" + format_count(run.micro_batch.size) +
         " a pass" + (run.micro_batch.origin.empty() ? "" : ", " + run.micro_batch.origin) +
         ") on " + run.state.device + ", " + to_string(train.precision) + ", " +
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

log::SettingValue setting_value(const std::string& json) {
  const auto value = nlohmann::json::parse(json);
  if (value.is_boolean()) {
    return value.get<bool>();
  }
  if (value.is_number()) {
    return value.get<double>();
  }
  return value.is_string() ? value.get<std::string>() : json;
}

// A run's name is no setting: it would be told as what makes runs differ.
log::Settings settings_of(const Config& config) {
  log::Settings settings;
  for (const FieldRow& row : list_fields(config)) {
    if (row.key != "run_name") {
      settings.emplace_back(row.key, setting_value(row.value));
    }
  }
  return settings;
}

std::optional<log::ValidEvent> best_so_far(const TrainingState& state) {
  if (state.best_step < 0) {
    return std::nullopt;
  }
  return log::ValidEvent{
      .step = state.best_step,
      .loss = state.best_valid_loss,
      .figures = {state.best_valid_figures.begin(), state.best_valid_figures.end()}};
}

Events open_sinks(const TrainingRun& run, const log::StillOurs& still_ours) {
  const fs::path& directory = run.directory.path();
  std::vector<std::unique_ptr<log::EventSink>> files;
  files.push_back(log::make_jsonl_sink(directory / kMetricsFile, still_ours));
  if (run.config.log.tensorboard) {
    const fs::path tensorboard = directory / kTensorboardDirectory;
    files.push_back(log::make_tensorboard_sink(tensorboard, run.state.step, still_ours));
    files.push_back(log::make_hparams_sink(tensorboard / kHparamsDirectory,
                                           {.settings = settings_of(run.config),
                                            .first_step = run.state.step,
                                            .best_so_far = best_so_far(run.state),
                                            .still_ours = still_ours}));
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
  log::info("run directory: " + shown_path(directory));
  const std::int64_t step = run.state.step;
  events.note(step, run.resumed ? "resumed" : "started", run.origin);
  events.emit(
      log::TextEvent{.step = step, .name = "config", .markdown = config_markdown(run.config)});
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
