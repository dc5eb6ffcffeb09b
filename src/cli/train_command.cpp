// train: a run from its config, or on from where it was.
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

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

struct TrainOptions {
  std::string config;
  std::vector<std::string> sets;
  std::string run_dir;
  std::string resume = "auto";
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

// The config in a run directory means that directory, wherever it was copied or moved to.
std::optional<std::filesystem::path> run_of(const std::filesystem::path& config) {
  const std::filesystem::path directory = config.has_parent_path() ? config.parent_path() : ".";
  std::error_code none;
  const bool is_run = config.filename() == "config.json" &&
                      std::filesystem::is_directory(directory / "checkpoints", none) &&
                      std::filesystem::exists(directory / "metrics.jsonl", none);
  return is_run ? std::optional(directory) : std::nullopt;
}

TrainRequest make_request(const TrainOptions& options) {
  TrainRequest request{.loaded = load_config(options.config, options.sets)};
  Config& config = request.loaded.config;
  config.train.device = options.device.value_or(config.train.device);
  config.train.precision = options.precision.value_or(config.train.precision);
  const at::Device device = ops::select_device(config.train.device);
  if (const auto warning = slow_precision(config.train.precision, device)) {
    request.loaded.warnings.push_back(*warning);
  }
  for (const std::string& idle : idle_settings(config.model)) {
    request.loaded.warnings.push_back(idle);
  }
  if (const auto warning = too_many_threads(config.train)) {
    request.loaded.warnings.push_back(*warning);
  }
  if (config.run_name.empty() && options.run_dir.empty()) {
    throw UserError(
        "run_name: a config from a pipe gives the run no name; set it "
        "(--set run_name=NAME), or say --run-dir");
  }
  request.run_dir =
      options.run_dir.empty()
          ? run_of(options.config).value_or(std::filesystem::path("runs") / config.run_name)
          : std::filesystem::path(options.run_dir);
  take_name_from(request.run_dir, config);
  if (options.resume == "auto") {
    request.resume = ResumeMode::automatic;
  } else if (options.resume == "never") {
    request.resume = ResumeMode::never;
  } else {
    request.resume = ResumeMode::checkpoint;
    request.resume_from = options.resume;
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
  add_path(*command, "CONFIG", options->config, "The run's config")->required();
  add_sets(*command, options->sets);
  add_path(*command, "--run-dir", options->run_dir,
           "Where the run lives (runs/NAME unless told, NAME being run_name; for the "
           "config.json of a run, where that lies)");
  add_path(*command, "--resume", options->resume,
           "auto: go on from the run directory's newest checkpoint, if any; never: refuse "
           "a directory that holds a run; or a checkpoint to go on from")
      ->type_name("auto|never|CHECKPOINT")
      ->capture_default_str();
  add_device(*command, options->device, "the config's train.device");
  add_precision(*command, options->precision, "the config's train.precision");
  add_nproc(*command, options->nproc);
  command->callback([options, &run] { run = [options] { return run_train(*options); }; });
}

}  // namespace transnormer::cli
