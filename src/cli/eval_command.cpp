// eval: perplexity of a checkpoint on held-out text.
#include <algorithm>
#include <array>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/processes.h"
#include "config/load.h"
#include "data/prepare.h"
#include "dist/watch.h"
#include "log/console.h"
#include "model/weights.h"
#include "ops/runtime/device.h"
#include "ops/runtime/nccl.h"
#include "task/objective.h"
#include "util/file.h"
#include "util/processors.h"
#include "util/signal.h"
#include "util/units.h"

namespace transnormer::cli {
namespace {

struct EvalOptions {
  std::string checkpoint;
  std::string data;
  std::string text;
  Split split = Split::test;
  std::optional<std::int64_t> context_window;
  std::string per_token;
  bool ema = false;
  bool json = false;
  std::vector<std::string> sets;
  std::optional<DeviceChoice> device;
  std::optional<Precision> precision;
  std::optional<std::int64_t> nproc;
};

constexpr std::array kSplitNames{Named{Split::train, "train"}, Named{Split::valid, "valid"},
                                 Named{Split::test, "test"}};

// How line ends are coded follows from the tokenizer, which is the checkpoint's, where the config
// of the text says nothing of it and is for one of another kind.
void keep_line_end(const Config& trained, LoadedConfig& loaded) {
  const std::string& origin = loaded.origins.at("data.line_end");
  const bool is_named = origin != "default" && origin != "tokenizer.type";
  const bool was_bpe = trained.tokenizer.type == TokenizerType::bpe;
  const bool is_bpe = loaded.config.tokenizer.type == TokenizerType::bpe;
  if (!is_named && was_bpe != is_bpe) {
    loaded.config.data.line_end = trained.data.line_end;
  }
}

// The config whose data is read: --data's, else the checkpoint's, which --set may change but for
// what made the weights.
LoadedConfig config_of(const EvalOptions& options, const Checkpoint& checkpoint) {
  const Config& trained = checkpoint.config();
  if (!options.data.empty()) {
    LoadedConfig loaded = reported(load_config(options.data, options.sets), ConfigReader::eval);
    keep_line_end(trained, loaded);
    return loaded;
  }
  objective(trained.train.objective).require_model(trained.model);
  LoadedConfig loaded =
      parse_config(config_to_json(trained), checkpoint.path() / "config.json", options.sets);
  for (const ConfigChange& change : config_changes(trained, loaded.config)) {
    if (change.key.starts_with("model.") || change.key.starts_with("tokenizer.")) {
      throw UserError("--set " + change.key +
                      ": the checkpoint's model and tokenizer are fixed; leave it out");
    }
  }
  for (const std::string& unread : unread_sets(loaded, ConfigReader::eval)) {
    log::warn(unread);
  }
  return loaded;
}

bool is_set(const LoadedConfig& loaded, const char* key) {
  const auto origin = loaded.origins.find(key);
  return origin != loaded.origins.end() && origin->second == "--set";
}

void print_table(const Evaluation& evaluation) {
  for (const auto& [name, value, meaning] : evaluation.table) {
    std::cout << name << std::string(22 - name.size(), ' ')
              << std::string(14 - std::min<std::size_t>(value.size(), 14), ' ') << value << "  "
              << meaning << '\n';
  }
  std::cout << "\nProtocol: " << evaluation.protocol << ".\n";
}

// The processes of a world share out the batches, and parts of the windows where the config says
// so.
void form_groups(dist::World& world, DistributedConfig config, at::Device device) {
  config.backend = DistributedBackend::automatic;
  if (world.size() == 1) {
    config.sequence_parallel = 1;
  }
  world.form_groups(config, device, ops::nccl_engines(device));
}

// Else the figures would be a mixture.
void require_same_work(const dist::World& world, const Checkpoint& checkpoint,
                       const EvaluationRequest& request, const Evaluator& evaluator,
                       Weights weights) {
  if (world.size() == 1) {
    return;
  }
  const std::string work = manifest_to_json(checkpoint.manifest()) + evaluator.text_digest() +
                           config_to_json(request.config) +
                           std::to_string(request.context_window.value_or(-1)) + ' ' +
                           c10::toString(request.compute) + (weights == Weights::ema ? " ema" : "");
  world.require_same(work, [](const std::string&, const std::string&) {
    return "evaluates another checkpoint or text than rank 0, or otherwise; all ranks need the "
           "same "
           "files and options";
  });
}

ExitStatus evaluate_in(dist::World& world, const EvalOptions& options) {
  const dist::Launch& launch = world.launch();
  const at::Device device =
      ops::select_device(options.device.value_or(DeviceChoice::automatic), launch.local_rank);
  std::optional<Checkpoint> opened;
  const std::string path = world.word_of_first([&] {
    opened = Checkpoint::open(options.checkpoint);
    return opened->path().string();
  });
  const Checkpoint checkpoint = opened ? *std::move(opened) : Checkpoint::open(path);
  const Weights weights = options.ema ? Weights::ema : Weights::trained;
  checkpoint.require(weights);  // before text is prepared
  const LoadedConfig loaded = config_of(options, checkpoint);
  const TrainConfig& train = loaded.config.train;
  const int sharing = world.count_alike(dist::machine_name() + ' ' + affinity());
  ops::configure_threads(useful_threads(train.threads, sharing), train.deterministic);
  form_groups(world, loaded.config.distributed, device);
  if (world.size() > 1) {
    log::info(world.describe());
  }
  const Precision precision = options.precision.value_or(Precision::fp32);
  // The window is the one the model was trained with, whatever config names the text, unless --set
  // says otherwise.
  const EvaluationRequest request{.trained = checkpoint.config(),
                                  .config = loaded.config,
                                  .tokenizer = checkpoint.tokenizer(),
                                  .token_counts = checkpoint.unigram_counts(),
                                  .split = options.split,
                                  .text = options.text,
                                  .window_is_set = is_set(loaded, "data.tokens_per_sample"),
                                  .context_window = options.context_window,
                                  .per_item_file = world.is_first() ? options.per_token : "",
                                  .compute = ops::scalar_type(precision),
                                  .sequence = world.sequence(),
                                  .batches = world.samples()};
  const Objective& learned = objective(checkpoint.config().train.objective);
  std::unique_ptr<Evaluator> evaluator;
  // The first one prepares the data; then the others find it.
  (void)world.word_of_first([&] {
    evaluator = learned.make_evaluator(request);
    return "ready";
  });
  if (!evaluator) {
    evaluator = learned.make_evaluator(request);
  }
  require_same_work(world, checkpoint, request, *evaluator, weights);
  const auto model = checkpoint.load_model(device, weights);
  require_finite_weights(*model, checkpoint.path().string());
  if (const auto warning = slow_precision(precision, device)) {
    log::warn(*warning);
  }
  const std::optional<Evaluation> evaluation = evaluator->evaluate(*model);
  if (!evaluation) {
    return stop_requested().value_or(ExitStatus::terminated);
  }
  if (options.json) {
    std::cout << evaluation->answer->dump(2) << '\n';
  } else {
    print_table(*evaluation);
  }
  return ExitStatus::done;
}

ExitStatus run_eval(const EvalOptions& options) {
  return run_in_processes(
      {.nproc = options.nproc, .input = options.text},
      {.prepare =
           [&] {
             install_signal_handlers();
             require_replaceable("--per-token", options.per_token, "losses of tokens",
                                 "{\"index\":");
             return DistributedConfig{};
           },
       .work = [&](dist::World& world) { return evaluate_in(world, options); }});
}

}  // namespace

void add_eval(CLI::App& app, Run& run) {
  CLI::App* command = app.add_subcommand("eval", "Perplexity of a checkpoint on held-out text");
  auto options = std::make_shared<EvalOptions>();
  add_path(*command, "CHECKPOINT", options->checkpoint, "A checkpoint, or a run directory")
      ->required();
  auto* data = add_path(*command, "--data", options->data,
                        "Score a split of this config (the checkpoint's unless told)");
  auto* text = add_path(*command, "--text", options->text, "Score this text file");
  auto* split = add_choice<Split>(*command, "--split", kSplitNames, options->split, "Which split");
  data->excludes(text);
  split->excludes(text)->default_str("test");
  add_integer(*command, "--context-window", options->context_window, {},
              "Inputs of a window that only serve as context "
              "(validation.context_window unless told)");
  add_path(*command, "--per-token", options->per_token,
           "Write each token's loss to this file, as JSON lines");
  command->add_flag("--ema", options->ema,
                    "Score the running mean of the weights (optimizer.ema) instead of them");
  command->add_flag("--json", options->json, "Print one JSON object");
  add_sets(*command, options->sets);
  add_device(*command, options->device, "auto");
  add_precision(*command, options->precision, "fp32");
  add_nproc(*command, options->nproc);
  command->callback([options, &run] { run = [options] { return run_eval(*options); }; });
}

}  // namespace transnormer::cli
