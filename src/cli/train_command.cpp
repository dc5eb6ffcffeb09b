// train: a run from its config, or on from where it was.
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/named_run.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/processes.h"
#include "config/fields.h"
#include "config/load.h"
#include "model/attention/registry.h"
#include "ops/runtime/device.h"
#include "train/trainer.h"
#include "util/error.h"
#include "util/file.h"
#include "util/signal.h"

namespace transnormer::cli {
namespace {

constexpr const char* kAuto = "auto";
constexpr const char* kNever = "never";

// Of --resume.
bool is_checkpoint(const std::string& resume) {
  return resume != kAuto && resume != kNever;
}

struct TrainOptions {
  std::string config;
  std::vector<std::string> sets;
  std::string run_dir;
  std::string resume = kAuto;
  std::string init_from;
  std::optional<DeviceChoice> device;
  std::optional<Precision> precision;
  std::optional<std::int64_t> nproc;
};

// The run's config then means the directory that holds it. The directory may not be there yet.
void take_name_from(const std::filesystem::path& run_dir, Config& config) {
  const std::string name = resolve_path(std::filesystem::absolute(run_dir)).filename();
  if (!name.empty() && misspelled(name, TextKind::name).empty()) {
    config.run_name = name;
  }
}

// A run goes on where it lies. Elsewhere it is another run, which must say what it begins with.
void require_own_directory(const TrainOptions& options, const NamedRun& run) {
  std::error_code none;
  const bool is_elsewhere = !options.run_dir.empty() &&
                            !std::filesystem::equivalent(options.run_dir, run.directory, none);
  const bool begins_with_another = !options.init_from.empty() || is_checkpoint(options.resume);
  if (is_elsewhere && !begins_with_another) {
    const std::string directory = run.directory.string();
    throw UserError("--run-dir: " + directory +
                    " is a run and goes on where it lies; leave --run-dir out, or say what the new "
                    "run begins with: --resume " +
                    directory + "/checkpoints/latest (all of this one's state), or --init-from " +
                    directory + " (its weights)");
  }
}

void take_init_from(const std::string& path, LoadedConfig& loaded) {
  if (path.empty()) {
    return;
  }
  if (const std::string how = misspelled(path, TextKind::file); !how.empty()) {
    throw UserError("--init-from: expected a path " + how);
  }
  loaded.config.train.init_from = std::filesystem::absolute(path).lexically_normal().string();
  loaded.origins["train.init_from"] = "--init-from";
}

// Weights to begin with, or all of a state to go on from.
void require_one_beginning(const TrainOptions& options, const LoadedConfig& loaded) {
  const std::string& origin = loaded.origins.at("train.init_from");
  if (is_checkpoint(options.resume) && origin.starts_with("--") &&
      !loaded.config.train.init_from.empty()) {
    throw UserError(origin + (origin == "--set" ? " train.init_from" : "") +
                    ": begins a new run with a checkpoint's weights, --resume CHECKPOINT goes on "
                    "with all of its state; leave one of them out");
  }
}

LoadedConfig load(const TrainOptions& options, const std::optional<NamedRun>& run) {
  LoadedConfig loaded =
      load_config(run ? run->config : std::filesystem::path(options.config), options.sets);
  Config& config = loaded.config;
  if (run && !run->warning.empty()) {
    loaded.warnings.push_back(run->warning);
  }
  if (options.device) {
    config.train.device = *options.device;
    loaded.origins["train.device"] = "--device";
  }
  if (options.precision) {
    config.train.precision = *options.precision;
    loaded.origins["train.precision"] = "--precision";
  }
  take_init_from(options.init_from, loaded);
  require_one_beginning(options, loaded);
  if (const auto warning =
          slow_precision(config.train.precision, ops::select_device(config.train.device))) {
    loaded.warnings.push_back(*warning);
  }
  for (const std::string& idle : idle_settings(config.model)) {
    loaded.warnings.push_back(idle);
  }
  if (const auto warning = too_many_threads(config.train)) {
    loaded.warnings.push_back(*warning);
  }
  return loaded;
}

std::filesystem::path directory_of(const TrainOptions& options, const std::optional<NamedRun>& run,
                                   const Config& config) {
  if (!options.run_dir.empty()) {
    return options.run_dir;
  }
  if (run) {
    return run->directory;
  }
  if (config.run_name.empty()) {
    throw UserError(
        "run_name: a config from a pipe gives the run no name; set it "
        "(--set run_name=NAME), or say --run-dir");
  }
  return std::filesystem::path("runs") / config.run_name;
}

TrainRequest make_request(const TrainOptions& options) {
  const std::optional<NamedRun> run = named_run(options.config);
  if (run) {
    require_own_directory(options, *run);
  }
  TrainRequest request{.loaded = load(options, run)};
  request.run_dir = directory_of(options, run, request.loaded.config);
  take_name_from(request.run_dir, request.loaded.config);
  if (is_checkpoint(options.resume)) {
    request.resume = ResumeMode::checkpoint;
    request.resume_from = options.resume;
  } else if (options.resume == kNever) {
    request.resume = ResumeMode::never;
  }
  return request;
}

ExitStatus run_train(const TrainOptions& options) {
  TrainRequest request;
  return run_in_processes(
      {.nproc = options.nproc, .inputs = {options.config}},
      {.prepare =
           [&] {
             install_signal_handlers();  // before the data is prepared, which can take long
             request = make_request(options);
             return request.loaded.config.distributed;
           },
       .work = [&](dist::World& world) { return train(request, world); }});
}

}  // namespace

void add_train(CLI::App& app, Run& run) {
  CLI::App* command = app.add_subcommand(
      "train", "Prepares data where its cache is missing, trains, validates, saves");
  auto options = std::make_shared<TrainOptions>();
  add_path(*command, "CONFIG|RUN", options->config,
           "The run's config; or a run directory: that run, with the config of its last start, "
           "--set included")
      ->required();
  add_sets(*command, options->sets);
  add_path(*command, "--run-dir", options->run_dir,
           "Where the run lives (runs/NAME unless told, NAME being run_name; for RUN and the "
           "config.json in one, that directory)");
  add_path(*command, "--resume", options->resume,
           "auto: go on from the run directory's newest checkpoint, if any; never: refuse "
           "a directory that holds a run; or a checkpoint to go on from")
      ->type_name("auto|never|CHECKPOINT")
      ->capture_default_str();
  add_path(*command, "--init-from", options->init_from,
           "A fresh run begins with the weights of this checkpoint, by name, and with its "
           "tokenizer (train.init_from)")
      ->type_name("CHECKPOINT");
  add_device(*command, options->device, "the config's train.device");
  add_precision(*command, options->precision, "the config's train.precision");
  add_nproc(*command, options->nproc);
  command->callback([options, &run] { run = [options] { return run_train(*options); }; });
}

}  // namespace transnormer::cli
