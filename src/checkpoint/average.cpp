#include "checkpoint/average.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "checkpoint/layout.h"
#include "checkpoint/unigram_file.h"
#include "checkpoint/whole_directory.h"
#include "config/load.h"
#include "model/model_size.h"
#include "util/error.h"
#include "util/signal.h"
#include "util/units.h"

namespace transnormer {
namespace fs = std::filesystem;
namespace {

// Of those the later one.
const Checkpoint& newest_of(const std::vector<Checkpoint>& sources) {
  const Checkpoint* newest = &sources.front();
  for (const Checkpoint& source : sources) {
    newest = source.state().step >= newest->state().step ? &source : newest;
  }
  return *newest;
}

// What tells models apart; the name of a variant does not, since its parts are spelled out.
bool makes_another_model(const std::string& key) {
  constexpr std::array<std::string_view, 3> kNot{"model.variant", "model.dropout",
                                                 "model.attention_dropout"};
  return key == "data.tokens_per_sample" || key == "data.line_end" || key == "data.strip_cr" ||
         (key.starts_with("model.") && std::ranges::find(kNot, key) == kNot.end());
}

void require_alike(const std::vector<Checkpoint>& sources) {
  const Checkpoint& first = sources.front();
  for (std::size_t i = 1; i < sources.size(); ++i) {
    const Checkpoint& other = sources[i];
    const auto refuse = [&](const std::string& difference) {
      throw UserError(difference + "; only weights of one model can be averaged");
    };
    for (const ConfigChange& change : config_changes(first.config(), other.config())) {
      if (makes_another_model(change.key)) {
        refuse(change.key + ": " + change.before + " in " + first.path().string() + ", " +
               change.after + " in " + other.path().string());
      }
    }
    if (first.tokenizer()->digest() != other.tokenizer()->digest()) {
      refuse("tokenizer: " + first.path().string() + " and " + other.path().string() +
             " have different ones");
    }
    for (std::size_t j = 0; j < i; ++j) {
      if (sources[j].path() == other.path()) {
        throw UserError(other.path().string() + ": is given twice, and would count twice");
      }
    }
  }
}

// Frozen vectors are drawn by the seed: the mean of two different ones would be neither.
void require_same_frozen(const at::Tensor& values, const at::Tensor& of_first,
                         const std::string& name, const Checkpoint& first,
                         const Checkpoint& other) {
  if (!at::equal(values, of_first)) {
    throw UserError("train.seed: " + name + ", drawn once and never trained, differs between " +
                    first.path().string() + " and " + other.path().string() +
                    "; only weights that started alike can be averaged");
  }
}

// Of one tensor; `values` is room for it.
at::Tensor mean_of(const NamedTensor& named, const std::vector<Checkpoint>& sources) {
  const at::Tensor values = at::empty(named.tensor.sizes(), named.tensor.scalar_type());
  at::Tensor sum, frozen;
  for (const Checkpoint& source : sources) {
    throw_if_stopped();
    source.load_into({{named.name, values}});
    if (!at::isfinite(values).all().item<bool>()) {
      throw UserError(source.path().string() + ": the weights of " + named.name +
                      " are not finite, as after a training that diverged; leave it out");
    }
    if (!named.trainable) {
      frozen = frozen.defined() ? frozen : values.clone();
      require_same_frozen(values, frozen, named.name, sources.front(), source);
    }
    sum = sum.defined() ? sum.add_(values) : values.to(at::kDouble);
  }
  return named.trainable ? sum.div_(static_cast<double>(sources.size())).to(values.scalar_type())
                         : frozen;
}

std::vector<NamedTensor> mean_weights(const std::vector<Checkpoint>& sources) {
  const at::NoGradGuard no_grad;
  const Checkpoint& first = sources.front();
  const ModelSize size = model_size(first.config(), first.tokenizer().get());
  std::vector<NamedTensor> weights =
      named_tensors(TransNormer(first.config().model, size, at::kMeta));
  for (const Checkpoint& source : sources) {
    source.require_weights(weights);
  }
  for (NamedTensor& named : weights) {
    named.tensor = mean_of(named, sources);
  }
  return weights;
}

// Where the newest stood, without what only its own training can go on with.
TrainingState state_of(const Checkpoint& newest) {
  const TrainingState& from = newest.state();
  TrainingState state;
  state.step = from.step;
  state.tokens = from.tokens;
  state.optimizer_updates = from.optimizer_updates;
  state.elapsed_s = from.elapsed_s;
  state.threads = from.threads;
  state.ranks = from.ranks;
  state.device = from.device;
  state.build = from.build;
  state.train_data_digest = from.train_data_digest;
  state.tokenizer_digest = from.tokenizer_digest;
  return state;
}

Manifest manifest_of(const std::vector<Checkpoint>& sources, const TrainingState& state) {
  Manifest manifest{.step = state.step, .tokens = state.tokens};
  for (const Checkpoint& source : sources) {
    manifest.averaged.push_back({source.path().string(), source.state().step,
                                 source.manifest().files.at(kModelFile).sha256});
  }
  return manifest;
}

}  // namespace

std::vector<Checkpoint> newest_checkpoints(const fs::path& run_dir, std::int64_t count) {
  const fs::path checkpoints = run_dir / kCheckpointsDirectory;
  std::error_code none;
  if (!fs::is_directory(checkpoints, none)) {
    throw UserError("--last: " + run_dir.string() + " is no run directory: it has no checkpoints/");
  }
  // A training that goes on may remove one while it is opened.
  constexpr int kMostTries = 20;
  for (int attempt = 1;; ++attempt) {
    const std::vector<std::int64_t> steps = whole_checkpoints(checkpoints);
    if (std::ssize(steps) < count) {
      throw UserError("--last: expected at most " + format_count(std::ssize(steps)) +
                      ", the checkpoints of " + run_dir.string() + ", got " + format_count(count) +
                      "; checkpoint.keep_last and keep_every say how many are kept");
    }
    try {
      std::vector<Checkpoint> opened;
      for (auto step = steps.end() - count; step != steps.end(); ++step) {
        opened.push_back(Checkpoint::open(checkpoints / checkpoint_name(*step)));
      }
      return opened;
    } catch (const UserError&) {
      if (attempt == kMostTries || whole_checkpoints(checkpoints) == steps) {
        throw;
      }
    }
  }
}

fs::path write_average(const std::vector<Checkpoint>& sources, const fs::path& out) {
  require_alike(sources);
  const WholeDirectoryKind kind{
      .noun = "an average",
      .files = checkpoint_directory(),
      .is_of_kind = [](const Manifest& manifest) { return !manifest.averaged.empty(); }};
  WholeDirectory directory(out, kind);
  const Checkpoint& newest = newest_of(sources);
  const TrainingState state = state_of(newest);
  DirectoryWriter& writer = directory.writer();
  writer.write_tensors(kModelFile, mean_weights(sources));
  throw_if_stopped();
  writer.write_bytes(kStateFile, state_to_json(state));
  writer.write_bytes(kConfigFile, config_to_json(newest.config()));
  writer.write_bytes(newest.tokenizer()->file_name(), newest.tokenizer()->serialized());
  writer.write_bytes(kUnigramFile, unigram_to_bytes(newest.unigram_counts()));
  directory.finish(manifest_of(sources, state));
  return directory.path();
}

}  // namespace transnormer
