#include "train/training_run.h"

#include <utility>

#include "config/load.h"
#include "dist/watch.h"
#include "model/attention/registry.h"
#include "model/footprint.h"
#include "model/graphed_pass.h"
#include "model/model_size.h"
#include "model/weights.h"
#include "ops/runtime/device.h"
#include "ops/runtime/device_memory.h"
#include "ops/runtime/nccl.h"
#include "optim/registry.h"
#include "task/batch_loader.h"
#include "task/objective.h"
#include "train/divergence.h"
#include "train/ending.h"
#include "train/prompts.h"
#include "train/resume.h"
#include "train/start.h"
#include "train/validation.h"
#include "util/error.h"
#include "util/processors.h"
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

// Weights and optimizer are surely needed; of the rest the estimate is good to some 30 %. Processes
// on one machine share its memory. Returns whether there is room for a copy of weights and
// optimizer, too.
bool require_memory(const Config& config, const Task& task, at::Device device,
                    const dist::World& world) {
  const ModelSize size = model_size(config, task.tokenizer().get());
  const std::int64_t length = task.sample_length();
  const OptimizerShape optimizer{.state_slots = state_slots(config.optimizer)};
  require_memory_for_training(config.model, size, optimizer, device);
  const BatchLoader::Options batches_held{.global_batch_size = config.train.global_batch_size,
                                          .micro_batch_size = micro_batch_size(config.train, world),
                                          .shares = world.samples().size(),
                                          .equal_rows = GraphedPass::possible(device)};
  MemoryEstimate estimate =
      training_memory(config.model, size, optimizer,
                      {.sequences = batches_held.micro_batch_size,
                       .length = length / world.sequence().size(),
                       .compute = ops::scalar_type(config.train.precision),
                       .activation_checkpointing = config.train.activation_checkpointing});
  const double whole_state = estimate.optimizer;
  if (config.distributed.shard_optimizer) {
    estimate.optimizer /= world.size();
  }
  // Rank 0 gathers what is spread to save it.
  const double gathered = config.distributed.shard_optimizer && world.is_first() ? whole_state : 0;
  const double needed = estimate.total() - 0.3 * estimate.activations + gathered;
  const double batches = BatchLoader::held_bytes(batches_held, task.bytes_per_sample());
  const int here = world.launch().local_size;
  const std::string of_one = here == 1 ? "" : " for each of " + format_count(here) + " processes";
  const double machine = ops::device_memory_bytes(at::kCPU) / here;
  const bool shared = device.is_cpu();  // the memory of batches and model is the same
  const double beside = shared ? needed : 0;
  if (batches + beside > machine && (batches > estimate.activations || !shared)) {
    throw UserError("train.global_batch_size: " + format_count(config.train.global_batch_size) +
                    " samples of " + format_count(length) + " tokens would take about " +
                    format_bytes(batches) + " for the tokens of the updates held ready, " +
                    format_bytes(batches + beside) + " in all, the machine has " +
                    format_bytes(machine) + of_one + "; set a smaller global_batch_size");
  }
  const double there = ops::device_memory_bytes(device) / (shared ? here : 1);
  if (needed + (shared ? batches : 0) > there) {
    throw UserError("train.micro_batch_size: " + format_count(batches_held.micro_batch_size) +
                    " sequences of " + format_count(length) + " tokens would take about " +
                    format_bytes(estimate.total()) + ", " + device.str() + " has " +
                    format_bytes(there) + of_one +
                    "; set a smaller micro_batch_size (the result stays the same)");
  }
  return (shared ? estimate.total() : 0) + batches + estimate.snapshot <= machine;
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
  if (const auto jump = jump_of_rate(saved, run.config, run.state.step, run.task->samples())) {
    run.warnings.push_back(*jump);
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
  run.unigram_counts = checkpoint.unigram_counts();
  run.resumed = true;
  run.damaged = start.damaged;
  if (start.is_fork) {
    run.forked_from = checkpoint.path();
  }
  run.way_to_go_on = start.way_to_go_on;
  run.origin = "resumed from " + checkpoint.path().string() + " (step " +
               format_count(run.state.step) + ", " + format_count(run.state.tokens) +
               " tokens seen)";
  carry_on(run, checkpoint.config());
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
  run.resumed = false;
  run.damaged.clear();
  run.origin = "started";
  run.state.train_data_digest = run.task->data_digest();
  run.state.tokenizer_digest = run.task->tokenizer()->digest();
  run.unigram_counts = run.task->token_counts();
  note_validation_kind(run);
}

std::int64_t micro_batch_size(const TrainConfig& config, const dist::World& world) {
  return config.micro_batch_size > 0 ? config.micro_batch_size
                                     : config.global_batch_size / world.samples().size();
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
  const Config& config = request.loaded.config;
  require_what_training_reads(config);
  const at::Device device = ops::select_device(config.train.device, world.launch().local_rank);
  ops::configure_threads(config.train.threads, config.train.deterministic,
                         world.count_alike(dist::machine_name() + ' ' + affinity()));
  world.require_same(config_to_json(config), difference);
  TrainingState state;
  record_environment(state, device, world.size());
  world.require_same(state.device + ", " + state.build, kind_difference);
  world.form_groups(config.distributed, device, ops::nccl_engines(device));
  require_that_ranks_fit(config, world);

  std::vector<std::string> warnings = request.loaded.warnings;
  Start start = start_together(request, world, state, warnings);
  throw_if_stopped();
  Task& task = *start.task;
  require_parts(config, task);
  require_same_text(world, task);
  const std::int64_t total = total_steps(config.train, task.samples());
  warn_of_warmup(config, total, warnings);
  const bool saves_in_background = require_memory(config, task, device, world);
  if (!saves_in_background) {
    warnings.emplace_back(
        "the memory has no room for a copy of weights and optimizer, so training waits while a "
        "checkpoint is written");
  }
  auto model = make_model(config, task, device);
  auto optimizer = make_optimizer(named_tensors(*model), config.optimizer,
                                  config.distributed.shard_optimizer ? world.all() : dist::Group());

  auto run = std::make_unique<TrainingRun>(
      TrainingRun{.config = config,
                  .device = device,
                  .world = world,
                  .directory = std::move(start.directory),
                  .task = std::move(start.task),
                  .total_steps = total,
                  .model = std::move(model),
                  .optimizer = std::move(optimizer),
                  .scaler = LossScaler(config.train.precision == Precision::fp16),
                  .state = std::move(state),
                  .saves_in_background = saves_in_background,
                  .warnings = std::move(warnings)});
  if (start.point.checkpoint) {
    start_from(*run, start.point);
  } else {
    start_anew(*run);
  }
  const std::vector<std::string> of_prompts = check_prompts(*run);
  run->warnings.insert(run->warnings.end(), of_prompts.begin(), of_prompts.end());
  require_equal_weights(*run);
  throw_if_stopped();
  return run;
}

}  // namespace transnormer
