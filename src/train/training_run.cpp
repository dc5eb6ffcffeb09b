#include "train/training_run.h"

#include <utility>

#include "config/load.h"
#include "dist/watch.h"
#include "model/attention/registry.h"
#include "model/model_size.h"
#include "model/weights.h"
#include "ops/runtime/device.h"
#include "ops/runtime/nccl.h"
#include "optim/no_decay.h"
#include "optim/registry.h"
#include "task/objective.h"
#include "train/divergence.h"
#include "train/ending.h"
#include "train/initial_weights.h"
#include "train/prompts.h"
#include "train/resume.h"
#include "train/start.h"
#include "train/training_memory.h"
#include "train/validation.h"
#include "util/error.h"
#include "util/processors.h"
#include "util/shown_path.h"
#include "util/signal.h"
#include "util/units.h"

namespace transnormer {
namespace {

void require_what_training_reads(const Config& config) {
  std::vector<std::string> faults;
  objective(config.train.objective).require_model(config.model);
  if (config.data.train.empty()) {
    faults.emplace_back("data.train: not set; training needs the path of a text file");
  }
  if (config.train.steps == 0 && config.train.max_epochs == 0) {
    faults.emplace_back(
        "train.steps and train.max_epochs are both 0, so training would never end; set one");
  }
  if (!faults.empty()) {
    throw UserError(faults);
  }
}

void require_that_ranks_fit(const Config& config, const dist::World& world) {
  const std::int64_t samples = config.train.global_batch_size;
  const int ranks = world.samples().size();
  if (samples % ranks != 0) {
    throw UserError("train.global_batch_size: " + format_count(samples) +
                    " samples cannot be split into equal shares for " + format_count(ranks) +
                    " ranks; set a multiple of " + format_count(ranks) +
                    ", or start another number of processes");
  }
  if (config.distributed.shard_optimizer) {
    require_shareable(config.optimizer, world.size());
  }
  const auto faults = unfit_for_sequence_parallel(config.model, config.data.tokens_per_sample,
                                                  config.distributed.sequence_parallel);
  if (!faults.empty()) {
    throw UserError(faults);
  }
}

// Equal weights need equal numbers everywhere.
std::string kind_difference(const std::string& first, const std::string& other) {
  return "computes by " + other + ", rank 0 by " + first +
         "; use machines of one kind, or set train.device";
}

void require_same_text(const dist::World& world, const Task& task) {
  const std::string digests =
      task.data_digest() + ' ' + task.validation_digest() + ' ' + task.tokenizer()->digest();
  world.require_same(digests, [](const std::string&, const std::string&) {
    return "the text of data.train or data.valid there, or its tokenizer, is not that of rank 0; "
           "all ranks need the same files";
  });
}

// A text shorter than one sample is a shorter sample.
void require_parts(const Config& config, const Task& task) {
  const std::int64_t parts = config.distributed.sequence_parallel;
  if (parts > 1 && task.sample_length() != config.data.tokens_per_sample) {
    throw UserError("distributed.sequence_parallel: the text for training has " +
                    format_count(task.sample_length()) +
                    " tokens, fewer than data.tokens_per_sample, so ranks cannot share a sample");
  }
}

std::string difference(const std::string& first, const std::string& other) {
  const auto config_of = [](const std::string& text) {
    return parse_config(text, "config").config;
  };
  std::string keys;
  for (const ConfigChange& change : config_changes(config_of(first), config_of(other))) {
    keys += (keys.empty() ? "" : "; ") + change.key + " is " + change.after + " there, " +
            change.before + " at rank 0";
  }
  return "has another config: " + keys + "; start all processes with the same";
}

TrainingShape shape_of(const Config& config, const Task& task) {
  return {.size = model_size(config, task.tokenizer().get()),
          .length = task.sample_length(),
          .bytes_per_sample = task.bytes_per_sample()};
}

// What an earlier start chose by itself; 0: none, or where a sequence took other memory.
std::int64_t saved_micro_batch(const StartingPoint& start, const Config& config,
                               const TrainingState& now) {
  if (!start.checkpoint) {
    return 0;
  }
  const TrainingState& saved = start.checkpoint->state();
  const Config& before = start.checkpoint->config();
  const bool is_alike =
      saved.device == now.device && saved.ranks == now.ranks &&
      before.train.precision == config.train.precision &&
      before.train.activation_checkpointing == config.train.activation_checkpointing &&
      (before.optimizer.ema > 0) == (config.optimizer.ema > 0);
  return is_alike ? saved.micro_batch_size : 0;
}

// For a resume.
void keep_micro_batch(TrainingRun& run) {
  run.state.micro_batch_size = run.config.train.micro_batch_size < 0 ? run.micro_batch.size : 0;
}

// Of each tensor; differs where any bit does, but for chance.
std::string digest_of_weights(const TransNormer& model) {
  std::string text;
  for (const NamedTensor& named : named_tensors(model)) {
    const at::Tensor bits = named.tensor.detach().contiguous().view(at::kInt);
    text += std::to_string(bits.sum(at::kLong).item<std::int64_t>()) + ' ';
  }
  return text;
}

// A warm-up beyond train.steps is told when the config is read; the end of the epochs is known
// here.
void warn_of_warmup(const Config& config, std::int64_t total_steps,
                    std::vector<std::string>& warnings) {
  const std::int64_t warmup = config.schedule.warmup_steps;
  if (warmup > total_steps && (config.train.steps == 0 || warmup <= config.train.steps)) {
    warnings.push_back("schedule.warmup_steps: the warm-up of " + format_count(warmup) +
                       " updates ends after training does, at update " + format_count(total_steps) +
                       " (train.max_epochs); optimizer.lr is never reached");
  }
}

std::shared_ptr<TransNormer> make_model(const Config& config, const Task& task, at::Device device) {
  return std::make_shared<TransNormer>(config.model, model_size(config, task.tokenizer().get()),
                                       device);
}

// What the saved run counted is judged as before, unless it says nothing about what comes.
void carry_on(TrainingRun& run, const Config& saved) {
  run.state.consecutive_skips = 0;
  if (learns_otherwise(saved, run.config) || !has_loss_windows(run.state)) {
    restart_loss_windows(run.state);
  }
  if (const auto change = change_of_rate(saved, run.config, run.state.step, run.task->samples())) {
    run.warnings.push_back(*change);
  }
}

void note_validation_kind(TrainingRun& run) {
  if (run.task->validation_digest().empty()) {
    return;
  }
  if (const auto change = note_validation_kind(run.state, validation_kind(run))) {
    run.notes.push_back({.name = "validation_changed", .message = *change});
  }
}

// A checkpoint from before it was switched on has none.
void load_average(TrainingRun& run, const Checkpoint& checkpoint) {
  const std::string step = format_count(run.state.step);
  if (!run.average) {
    if (checkpoint.has_average()) {
      run.warnings.push_back(
          "optimizer.ema: the running mean of the weights that the checkpoint of "
          "step " +
          step + " holds is dropped, since it is 0 now");
    }
    return;
  }
  if (checkpoint.has_average()) {
    checkpoint.load_average_into(run.average->named(named_tensors(*run.model)));
    return;
  }
  run.average->restart();
  run.warnings.push_back("optimizer.ema: the running mean of the weights starts at step " + step +
                         " as the weights are there, since the checkpoint holds none");
}

}  // namespace

void start_from(TrainingRun& run, const StartingPoint& start) {
  const Checkpoint& checkpoint = *start.checkpoint;
  checkpoint.load_into(*run.model);
  require_finite_weights(*run.model, checkpoint.path().string());
  checkpoint.load_into(*run.optimizer);
  const TrainingState now = std::exchange(run.state, checkpoint.state());
  run.state.threads = now.threads;
  run.state.device = now.device;
  run.state.build = now.build;
  run.state.ranks = now.ranks;
  run.scaler = LossScaler(run.config.train.precision == Precision::fp16);
  if (checkpoint.config().train.precision == Precision::fp16) {
    run.scaler.restore(run.state.loss_scale, run.state.scale_growth_count);
  }
  keep_micro_batch(run);
  run.unigram_counts = checkpoint.unigram_counts();
  run.resumed = true;
  run.damaged = start.damaged;
  if (start.is_fork) {
    run.forked_from = checkpoint.path();
  }
  run.origin = "resumed from " + shown_path(checkpoint.path()) + " (step " +
               format_count(run.state.step) + ")";
  carry_on(run, checkpoint.config());
  load_average(run, checkpoint);
  note_validation_kind(run);
  // A run that ended goes on where what ended it was raised.
  if (run.state.finished) {
    run.already_ended = reason_to_end(run.config, run.state, run.total_steps);
    run.state.finished = false;
    run.state.finish_reason.clear();
  }
}

void start_anew(TrainingRun& run) {
  initialize(*run.model, static_cast<std::uint64_t>(run.config.train.seed));
  run.optimizer->reset();
  run.scaler = LossScaler(run.config.train.precision == Precision::fp16);
  run.state = {};
  record_environment(run.state, run.device, run.world.size());
  keep_micro_batch(run);
  run.resumed = false;
  run.damaged.clear();
  run.origin = "started";
  if (run.initial) {
    take_initial_weights(run);
  }
  if (run.average) {  // from the weights that are there now
    run.average->restart();
  }
  run.state.train_data_digest = run.task->data_digest();
  run.state.tokenizer_digest = run.task->tokenizer()->digest();
  run.unigram_counts = run.task->token_counts();
  note_validation_kind(run);
}

void require_equal_weights(const TrainingRun& run) {
  if (run.world.size() > 1) {
    run.world.require_same(digest_of_weights(*run.model),
                           [&run](const std::string&, const std::string&) {
                             return "its weights at step " + format_count(run.state.step) +
                                    " are not those of rank 0; are all machines of one kind, with "
                                    "sound memory?";
                           });
  }
}

std::unique_ptr<TrainingRun> set_up(const TrainRequest& request) {
  return set_up(request, dist::alone());
}

std::unique_ptr<TrainingRun> set_up(const TrainRequest& request, dist::World& world) {
  const Config& asked = request.loaded.config;
  require_what_training_reads(asked);
  const at::Device device = ops::select_device(asked.train.device, world.launch().local_rank);
  ops::configure_threads(asked.train.threads, asked.train.deterministic,
                         world.count_alike(dist::machine_name() + ' ' + affinity()));
  world.require_same(config_to_json(asked), difference);
  TrainingState state;
  record_environment(state, device, world.size());
  world.require_same(state.device + ", " + state.build, kind_difference);
  world.form_groups(asked.distributed, device, ops::nccl_engines(device));
  require_that_ranks_fit(asked, world);

  std::vector<std::string> warnings = request.loaded.warnings;
  Start start = start_together(request, world, state, warnings);
  throw_if_stopped();
  const Config& config = start.config;
  Task& task = *start.task;
  require_parts(config, task);
  require_same_text(world, task);
  const std::int64_t total = total_steps(config.train, task.samples());
  warn_of_warmup(config, total, warnings);
  const TrainingMemory memory(config, shape_of(config, task), device, world);
  MicroBatch micro_batch = choose_micro_batch(config, memory, device, world,
                                              saved_micro_batch(start.point, config, state));
  const bool saves_in_background = memory.require(micro_batch.size);
  if (!saves_in_background) {
    warnings.emplace_back(
        "the memory has no room for a copy of weights and optimizer, so training waits while a "
        "checkpoint is written");
  }
  auto model = make_model(config, task, device);
  auto optimizer = make_optimizer(named_tensors(*model), config.optimizer,
                                  config.distributed.shard_optimizer ? world.all() : dist::Group());

  for (std::string& line : idle_globs(config.optimizer.no_decay, optimizer->parameters())) {
    warnings.push_back(std::move(line));
  }

  auto run = std::make_unique<TrainingRun>(
      TrainingRun{.config = config,
                  .device = device,
                  .world = world,
                  .directory = std::move(start.directory),
                  .task = std::move(start.task),
                  .total_steps = total,
                  .micro_batch = std::move(micro_batch),
                  .model = std::move(model),
                  .optimizer = std::move(optimizer),
                  .scaler = LossScaler(config.train.precision == Precision::fp16),
                  .state = std::move(state),
                  .saves_in_background = saves_in_background,
                  .initial = std::move(start.point.initial),
                  .changes = std::move(start.point.changes),
                  .warnings = std::move(warnings)});
  if (config.optimizer.ema > 0) {
    run->average = std::make_unique<WeightAverage>(run->optimizer->flat(), config.optimizer.ema);
  }
  run->way_to_go_on = start.point.way_to_go_on;
  if (start.point.checkpoint) {
    start_from(*run, start.point);
  } else {
    start_anew(*run);
    if (config.train.divergence_retries == 0) {
      run->initial.reset();  // it is not gone back to
    }
  }
  const std::vector<std::string> of_prompts = check_prompts(*run);
  run->warnings.insert(run->warnings.end(), of_prompts.begin(), of_prompts.end());
  require_equal_weights(*run);
  throw_if_stopped();
  if (config.train.micro_batch_size < 0 && !device.is_cpu() &&
      run->micro_batch.origin != MicroBatch::kAsBefore) {
    try_micro_batch(*run);
  }
  keep_micro_batch(*run);
  return run;
}

}  // namespace transnormer
