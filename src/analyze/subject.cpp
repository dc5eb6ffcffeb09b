#include "analyze/subject.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <utility>

#include "config/splits.h"
#include "data/samples.h"
#include "data/text_files.h"
#include "log/console.h"
#include "model/attention/registry.h"
#include "model/model_size.h"
#include "model/weights.h"
#include "ops/runtime/device_memory.h"
#include "util/error.h"
#include "util/units.h"

namespace transnormer {
namespace {

Window window_of(const at::Tensor& inputs, const at::Tensor& targets, at::Device device) {
  return {inputs.view({1, -1}).to(device), targets.view({1, -1}).to(device)};
}

std::vector<Window> windows_of(const PreparedSplit& text, Split split, const Tokenizer& tokenizer,
                               std::int64_t length, const SubjectOptions& options) {
  const Samples samples(text.stream, length, tokenizer.first_input());
  if (text.stream.size() < 2) {
    throw UserError("data." + std::string(to_string(split)) +
                    ": expected at least 2 tokens to analyse a model on, got " +
                    std::to_string(text.stream.size()));
  }
  const std::int64_t whole = std::max<std::int64_t>(1, text.stream.size() / samples.length());
  const std::int64_t count = std::min(options.windows, whole);
  std::vector<Window> windows;
  for (std::int64_t i = 0; i < count; ++i) {
    at::Tensor inputs = at::empty({samples.length()}, at::kLong);
    at::Tensor targets = at::empty({samples.length()}, at::kLong);
    samples.copy(i * whole / count, inputs.mutable_data_ptr<std::int64_t>(),
                 targets.mutable_data_ptr<std::int64_t>());
    windows.push_back(window_of(inputs, targets, options.device));
  }
  return windows;
}

std::vector<Window> random_windows(const Config& config, std::int64_t words,
                                   const SubjectOptions& options) {
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(config.train.seed);
  const std::int64_t length = config.data.tokens_per_sample;
  std::vector<Window> windows;
  for (std::int64_t i = 0; i < options.windows; ++i) {
    const at::Tensor tokens = at::randint(words, {length + 1}, generator, at::kLong);
    windows.push_back(
        window_of(tokens.narrow(0, 0, length), tokens.narrow(0, 1, length), options.device));
  }
  return windows;
}

void require_split(const DataConfig& data, Split split) {
  const bool is_there = split == Split::train   ? !data.train.empty()
                        : split == Split::valid ? has_valid(data)
                                                : !data.test.empty();
  if (!is_there) {
    throw UserError("data." + std::string(to_string(split)) +
                    ": expected a text to analyse the model on, got none; set it, or name another "
                    "split by --split");
  }
}

// A split that was asked for must be there.
bool has_text(const Config& config, const SubjectOptions& options) {
  const DataConfig& data = config.data;
  if (options.split) {
    require_split(data, *options.split);
    return true;
  }
  if (data.train.empty() && data.valid.empty() && data.test.empty()) {
    return false;
  }
  try {
    if (held_out_share(data) > 0) {
      (void)find_text_files(data.train, "data.train");
    } else {
      (void)find_text_files(data.valid, "data.valid");
    }
    return true;
  } catch (const UserError& error) {
    log::info("random tokens in place of a text: " + error.faults().front());
    return false;
  }
}

std::shared_ptr<TransNormer> initial_model(const ModelConfig& config, const ModelSize& size,
                                           std::int64_t seed, at::Device device) {
  auto model = std::make_shared<TransNormer>(config, size, device);
  initialize(*model, static_cast<std::uint64_t>(seed));
  return model;
}

void finish(Subject& subject) {
  for (const Window& window : subject.windows) {
    subject.length = std::max(subject.length, window.inputs.size(1));
  }
  require_room_for_matrices(subject);
}

}  // namespace

Subject subject_of(const Checkpoint& checkpoint, const SubjectOptions& options) {
  const Config& config = checkpoint.config();
  const auto tokenizer = checkpoint.tokenizer();
  const Split split = options.split.value_or(Split::valid);
  require_split(config.data, split);
  const PreparedData data = prepare_data(config, tokenizer, {.wanted = {split}});
  Subject subject{.config = config,
                  .model = nullptr,
                  .rebuild = {},
                  .windows = windows_of(data.at(split), split, *tokenizer,
                                        config.data.tokens_per_sample, options),
                  .trained = true,
                  .text = "split " + std::string(to_string(split)),
                  .metrics = {}};
  finish(subject);
  subject.model = checkpoint.load_model(options.device);
  require_finite_weights(*subject.model, checkpoint.path().string());
  subject.rebuild = [checkpoint, size = subject.model->size(), seed = config.train.seed,
                     device = options.device](const ModelConfig& other) {
    auto model = initial_model(other, size, seed, device);
    checkpoint.load_common_into(*model);
    return model;
  };
  // RUN/checkpoints/step-..
  const auto metrics = checkpoint.path().parent_path().parent_path() / "metrics.jsonl";
  if (std::filesystem::is_regular_file(metrics)) {
    subject.metrics = metrics;
  }
  return subject;
}

Subject subject_of(const Config& config, const SubjectOptions& options) {
  Subject subject{.config = config,
                  .model = nullptr,
                  .rebuild = {},
                  .windows = {},
                  .trained = false,
                  .text = "random tokens",
                  .metrics = {}};
  ModelSize size;
  if (has_text(config, options)) {
    const Split split = options.split.value_or(Split::valid);
    const PreparedData data = prepare_data(config, {.wanted = {split}});
    size = model_size(config, data.tokenizer.get());
    subject.windows =
        windows_of(data.at(split), split, *data.tokenizer, config.data.tokens_per_sample, options);
    subject.text = "split " + std::string(to_string(split));
  } else {
    size = model_size(config, nullptr);
    subject.windows = random_windows(config, size.vocab_size, options);
  }
  finish(subject);
  subject.rebuild = [size, seed = config.train.seed,
                     device = options.device](const ModelConfig& other) {
    return initial_model(other, size, seed, device);
  };
  subject.model = subject.rebuild(config.model);
  return subject;
}

void require_room_for_matrices(const Subject& subject) {
  // All heads in fp32, and one head in fp64 with copies.
  constexpr double kCopies = 4;
  const auto length = static_cast<double>(subject.length);
  const double needed =
      length * length *
      (4 * static_cast<double>(subject.config.model.heads) + kCopies * sizeof(double));
  const double there = ops::device_memory_bytes(at::kCPU);
  if (needed > there) {
    throw UserError(
        "data.tokens_per_sample: expected a length whose attention matrices fit into "
        "the memory, got " +
        format_count(subject.length) + ": those of one layer take " + format_bytes(needed) +
        ", and there are " + format_bytes(there));
  }
}

const AttentionConfig& attention_of(const ModelConfig& model, std::int64_t layer) {
  return layer < model.resolved_early_layers() ? model.early : model.late;
}

Weighting weighting_of(const ModelConfig& model, std::int64_t layer) {
  const AttentionConfig& attention = attention_of(model, layer);
  return attention_kinds().at(attention.name()).weighting(attention);
}

}  // namespace transnormer
