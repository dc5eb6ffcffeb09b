#include "checkpoint/checkpoint.h"

#include <sys/stat.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "checkpoint/layout.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/state_check.h"
#include "checkpoint/unigram_file.h"
#include "config/load.h"
#include "model/model_size.h"
#include "tokenizer/word_dictionary.h"
#include "util/error.h"
#include "util/file.h"
#include "util/units.h"

namespace transnormer {
namespace fs = std::filesystem;
namespace {

// The checkpoint that a run directory stands for.
fs::path choose_of_run(const fs::path& run_dir) {
  const fs::path checkpoints = run_dir / kCheckpointsDirectory;
  const std::vector<std::int64_t> steps = whole_checkpoints(checkpoints);
  if (steps.empty()) {
    throw UserError(run_dir.string() + ": this run has no checkpoint yet");
  }
  return checkpoints / checkpoint_name(best_checkpoint(checkpoints, steps).value_or(steps.back()));
}

fs::path locate(const fs::path& path) {
  std::error_code error;
  if (!fs::exists(path, error)) {
    throw UserError(path.string() + ": there is no such checkpoint");
  }
  if (!fs::is_directory(path, error)) {
    throw UserError(path.string() +
                    ": a file; a checkpoint is a directory that holds manifest.json");
  }
  if (is_whole_checkpoint(path)) {
    return path;
  }
  if (fs::is_directory(path / kCheckpointsDirectory, error)) {
    return choose_of_run(path);
  }
  throw UserError(path.string() +
                  ": not a checkpoint: it holds neither manifest.json nor checkpoints/");
}

// A directory as it was found.
class Place {
 public:
  explicit Place(fs::path path) : path_(std::move(path)), found_(look()) {}
  // Not removed, nor replaced by another, as a training does with checkpoints; a link leads where
  // it did.
  [[nodiscard]] bool is_as_found() const { return look() == found_; }
  [[nodiscard]] bool is_still_there() const { return found_ && is_as_found(); }

 private:
  using Identity = std::pair<dev_t, ino_t>;
  [[nodiscard]] std::optional<Identity> look() const {
    struct stat status {};
    return ::stat(path_.c_str(), &status) == 0
               ? std::optional(Identity(status.st_dev, status.st_ino))
               : std::nullopt;
  }

  fs::path path_;
  std::optional<Identity> found_;
};

// The files that are read of a checkpoint, but for its tokenizer.
std::set<std::string> files_of(const Manifest& manifest) {
  std::set<std::string> files{kModelFile, kStateFile, kConfigFile, kUnigramFile};
  if (manifest.averaged.empty()) {
    files.insert(kOptimizerFile);
  }
  if (manifest.files.contains(kAverageFile)) {
    files.insert(kAverageFile);
  }
  return files;
}

// Name of the tokenizer's file; throws where a file that every checkpoint has is not listed.
std::string check_listed(const fs::path& path, const Manifest& manifest) {
  const auto listed = [&](const std::string& name) { return manifest.files.contains(name); };
  for (const std::string& name : files_of(manifest)) {
    if (!listed(name)) {
      throw DamagedCheckpointError((path / kManifestFile).string() +
                                   ": damaged: it does not list " + name);
    }
  }
  const auto* tokenizer =
      std::find_if(std::begin(kTokenizerFiles), std::end(kTokenizerFiles), listed);
  if (tokenizer == std::end(kTokenizerFiles)) {
    throw DamagedCheckpointError((path / kManifestFile).string() +
                                 ": damaged: it lists no tokenizer");
  }
  return *tokenizer;
}

void check_agreement(const fs::path& path, const Manifest& manifest, const TrainingState& state) {
  if (manifest.step != state.step || manifest.tokens != state.tokens) {
    throw DamagedCheckpointError(
        (path / kManifestFile).string() + ": damaged: step " + std::to_string(manifest.step) +
        " and " + std::to_string(manifest.tokens) + " tokens, state.json says " +
        std::to_string(state.step) + " and " + std::to_string(state.tokens));
  }
}

// Of an optimizer whose state is spread over processes: a tensor at a time, of which each takes its
// part.
void read_shared(const InputFile& file, Optimizer& optimizer) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < optimizer.parameters().size(); ++i) {
    for (const StateSlot& slot : optimizer.slots_of(i)) {
      names.push_back(optimizer.parameters()[i].name + '.' + slot.name);
    }
  }
  require_names(file, names);
  std::size_t number = 0;
  for (std::size_t i = 0; i < optimizer.parameters().size(); ++i) {
    const NamedTensor& parameter = optimizer.parameters()[i];
    for (std::size_t slot = 0; slot < optimizer.slots_of(i).size(); ++slot) {
      const at::Tensor whole = at::empty(parameter.tensor.sizes(), at::kFloat);
      read_named_safetensors(file, {{names[number++], whole, false}});
      optimizer.take_state(i, slot, whole);
    }
  }
}

}  // namespace

Checkpoint Checkpoint::open(const fs::path& path) {
  constexpr int kMostChoices = 20;
  for (int choice = 1;; ++choice) {
    const Place given(path);
    std::optional<Place> chosen;
    try {
      const fs::path located = locate(path);
      chosen.emplace(located);
      return Checkpoint(resolve_path(located));
    } catch (const UserError&) {
      const bool is_unchanged = given.is_as_found() && (!chosen || chosen->is_still_there());
      if (choice == kMostChoices || is_unchanged) {
        throw;
      }
    }
  }
}

Checkpoint::Checkpoint(fs::path path) : path_(std::move(path)) {
  manifest_ = read_manifest(path_);
  const std::string tokenizer_file = check_listed(path_, manifest_);
  std::set<std::string> wanted = files_of(manifest_);
  wanted.insert(tokenizer_file);
  files_ = open_verified(path_, manifest_, wanted);
  switch (manifest_.format) {
    case kCheckpointFormat:
      read(tokenizer_file);
      break;
    default:  // read_manifest() refuses what is newer; a format before gets its converter here
      throw UserError(path_.string() + ": checkpoint format " + std::to_string(manifest_.format) +
                      " is no longer read");
  }
}

void Checkpoint::read(const std::string& tokenizer_file) {
  const auto text_of = [this](const std::string& name) { return files_.at(name).text(); };
  const auto name_of = [this](const std::string& name) { return (path_ / name).string(); };
  state_ = state_from_json(text_of(kStateFile), name_of(kStateFile));
  check_state(state_, name_of(kStateFile));
  check_agreement(path_, manifest_, state_);
  config_ = parse_config(text_of(kConfigFile), name_of(kConfigFile)).config;
  tokenizer_ = parse_tokenizer(text_of(tokenizer_file), name_of(tokenizer_file));
  unigram_counts_ = unigram_from_bytes(text_of(kUnigramFile), name_of(kUnigramFile));
  if (std::ssize(unigram_counts_) != tokenizer_->size()) {
    throw DamagedCheckpointError(name_of(kUnigramFile) + ": damaged: it counts " +
                                 format_count(std::ssize(unigram_counts_)) +
                                 " tokens, the tokenizer has " + format_count(tokenizer_->size()));
  }
}

bool Checkpoint::has_average() const {
  return manifest_.files.contains(kAverageFile);
}

void Checkpoint::require(Weights weights) const {
  if (weights == Weights::ema && !has_average()) {
    throw UserError(path_.string() + ": holds no running mean of the weights (" + kAverageFile +
                    "), since it was trained without optimizer.ema; leave --ema out");
  }
}

std::shared_ptr<TransNormer> Checkpoint::load_model(at::Device device, Weights weights) const {
  require(weights);
  auto model =
      std::make_shared<TransNormer>(config_.model, model_size(config_, tokenizer_.get()), device);
  if (weights == Weights::ema) {
    load_average_into(named_tensors(*model));
  } else {
    load_into(*model);
  }
  return model;
}

void Checkpoint::load_average_into(const std::vector<NamedTensor>& average) const {
  read_safetensors(files_.at(kAverageFile), average);
}

void Checkpoint::load_into(TransNormer& model) const {
  read_safetensors(files_.at(kModelFile), named_tensors(model));
}

LoadReport Checkpoint::load_common_into(TransNormer& model) const {
  return load_by_name(files_.at(kModelFile), named_tensors(model));
}

void Checkpoint::require_weights(const std::vector<NamedTensor>& tensors) const {
  std::vector<std::string> names;
  for (const NamedTensor& named : tensors) {
    names.push_back(named.name);
  }
  require_names(files_.at(kModelFile), names);
}

void Checkpoint::load_into(const std::vector<NamedTensor>& some) const {
  read_named_safetensors(files_.at(kModelFile), some);
}

void Checkpoint::load_into(Optimizer& optimizer) const {
  const InputFile& file = files_.at(kOptimizerFile);
  if (optimizer.shared_by().size() == 1) {
    read_safetensors(file, optimizer.named_state());
  } else {
    read_shared(file, optimizer);
  }
  optimizer.set_updates(state_.optimizer_updates);
}

}  // namespace transnormer
