// eval: perplexity of checkpoints on held-out texts.
#include <algorithm>
#include <array>
#include <iostream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/eval_inputs.h"
#include "cli/eval_options.h"
#include "cli/eval_record.h"
#include "cli/eval_results.h"
#include "cli/options.h"
#include "cli/outcome.h"
#include "cli/processes.h"
#include "dist/watch.h"
#include "log/console.h"
#include "model/weights.h"
#include "ops/runtime/device.h"
#include "ops/runtime/nccl.h"
#include "util/processors.h"
#include "util/signal.h"
#include "util/units.h"

namespace transnormer::cli {
namespace {

constexpr std::array kSplitNames{Named{Split::train, "train"}, Named{Split::valid, "valid"},
                                 Named{Split::test, "test"}};

// The processes of a world share out the batches, and parts of the windows where the config says
// so.
void form_groups(dist::World& world, const EvalInputs& inputs, at::Device device) {
  DistributedConfig config = inputs.subjects.front().loaded.config.distributed;
  const bool differ = std::ranges::any_of(inputs.subjects, [&config](const Subject& subject) {
    return subject.loaded.config.distributed.sequence_parallel != config.sequence_parallel;
  });
  if (world.size() == 1) {
    config.sequence_parallel = 1;
  } else if (differ) {
    throw UserError(
        "distributed.sequence_parallel differs between the checkpoints, and the processes form one "
        "set of groups; name one with --set distributed.sequence_parallel=1");
  }
  config.backend = DistributedBackend::automatic;
  world.form_groups(config, device, ops::nccl_engines(device));
}

// Threads are those that this config asks for.
void configure_threads(const Subject& subject, int sharing) {
  const TrainConfig& train = subject.loaded.config.train;
  ops::configure_threads(useful_threads(train.threads, sharing), train.deterministic);
}

void require_one_result(const EvalOptions& options, std::size_t results) {
  if (results > 1 && !options.per_token.empty()) {
    throw UserError("--per-token: the file takes the losses of one checkpoint on one text, and " +
                    format_count(static_cast<std::int64_t>(results)) +
                    " are to be scored; run them one by one, each with a file of its own");
  }
}

std::vector<ResultName> result_names(const EvalInputs& inputs, const EvalOptions& options) {
  std::vector<ResultName> names;
  std::ranges::transform(inputs.scorings, std::back_inserter(names),
                         [&options](const Scoring& scoring) { return name_of(scoring, options); });
  return names;
}

// False where a signal asked to stop on the way.
bool score_all(EvalInputs& inputs, dist::World& world, const EvalOptions& options,
               at::Device device, int sharing) {
  Results results(options.form(), result_names(inputs, options));
  const Subject* loaded = nullptr;
  std::shared_ptr<TransNormer> model;
  for (Scoring& scoring : inputs.scorings) {
    const Subject& subject = scoring.subject;
    if (&subject != loaded) {
      model.reset();  // before the next one needs the memory
      configure_threads(subject, sharing);
      model = subject.checkpoint.load_model(device, options.weights());
      require_finite_weights(*model, subject.checkpoint.path().string());
      loaded = &subject;
      log::info("checkpoint " + subject.checkpoint.path().string() + " (step " +
                format_count(subject.checkpoint.state().step) + ")");
    }
    const std::optional<Evaluation> evaluation = scoring.evaluator->evaluate(*model);
    if (!evaluation) {
      return false;
    }
    results.add({name_of(scoring, options), *evaluation});
    if (inputs.scorings.size() == 1) {
      results.finish();
      flush_answer();
    }
    if (const auto file = record_of(scoring, options); file && world.is_first()) {
      record(*file, scoring, options, *evaluation);
    }
  }
  if (inputs.scorings.size() > 1) {
    results.finish();
  }
  return true;
}

ExitStatus evaluate_in(dist::World& world, const EvalOptions& options) {
  const dist::Launch& launch = world.launch();
  const at::Device device =
      ops::select_device(options.device.value_or(DeviceChoice::automatic), launch.local_rank);
  const std::unique_ptr<EvalInputs> inputs = open_inputs(world, options);
  require_one_result(options,
                     inputs->subjects.size() * std::max<std::size_t>(inputs->texts.size(), 1));
  const int sharing = world.count_alike(dist::machine_name() + ' ' + affinity());
  configure_threads(inputs->subjects.front(), sharing);
  form_groups(world, *inputs, device);
  if (world.size() > 1) {
    log::info(world.describe());
  }
  prepare_scorings(*inputs, world, options);
  if (const auto warning = slow_precision(options.precision.value_or(Precision::fp32), device)) {
    log::warn(*warning);
  }
  return score_all(*inputs, world, options, device, sharing)
             ? ExitStatus::done
             : stop_requested().value_or(ExitStatus::terminated);
}

ExitStatus run_eval(const EvalOptions& options) {
  return run_in_processes(
      {.nproc = options.nproc, .inputs = options.texts},
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
  CLI::App* command = app.add_subcommand("eval", "Perplexity of checkpoints on held-out texts");
  auto options = std::make_shared<EvalOptions>();
  add_paths(*command, "CHECKPOINT", options->checkpoints, "Checkpoints, or run directories")
      ->required();
  auto* data = add_path(*command, "--data", options->data,
                        "Score a split of this config (the checkpoint's unless told)");
  auto* text = add_paths(*command, "--text", options->texts,
                         "Score this text file, or those of a glob; -: standard input (repeatable)")
                   ->allow_extra_args(false);
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
  auto* json = command->add_flag("--json", options->json, "Print one JSON object");
  command->add_flag("--table", options->markdown, "Print a Markdown table, the best in bold")
      ->excludes(json);
  add_sets(*command, options->sets);
  add_device(*command, options->device, "auto");
  add_precision(*command, options->precision, "fp32");
  add_nproc(*command, options->nproc);
  command->callback([options, &run] { run = [options] { return run_eval(*options); }; });
}

}  // namespace transnormer::cli
