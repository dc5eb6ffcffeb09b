#include "checkpoint/checkpoint.h"

#include <algorithm>
#include <string>

#include "checkpoint/layout.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/unigram_file.h"
#include "config/load.h"
#include "tokenizer/word_dictionary.h"
#include "util/error.h"
#include "util/file.h"
#include "util/units.h"

namespace transnormer {
namespace fs = std::filesystem;
namespace {

constexpr const char* kTokenizerFiles[] = {"tokenizer.txt", "tokenizer.model"};

// The checkpoint that a run directory stands for.
fs::path choose_of_run(const fs::path& run_dir) {
  const fs::path checkpoints = run_dir / kCheckpointsDirectory;
  for (const char* link : {kBestLink, kLatestLink}) {
    if (const auto step = linked_step(checkpoints / link)) {
      return checkpoints / checkpoint_name(*step);
    }
  }
  const std::vector<std::int64_t> steps = whole_checkpoints(checkpoints);
  if (steps.empty()) {
    throw UserError(run_dir.string() + ": this run has no checkpoint yet");
  }
  return checkpoints / checkpoint_name(steps.back());
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

// Name of the tokenizer's file; throws where a file that every checkpoint has is not listed.
std::string check_listed(const fs::path& path, const Manifest& manifest) {
  const auto listed = [&](const char* name) { return manifest.files.contains(name); };
  for (const char* name : {kModelFile, kOptimizerFile, kStateFile, kConfigFile, kUnigramFile}) {
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

}  // namespace

Checkpoint Checkpoint::open(const fs::path& path) {
  Checkpoint checkpoint;
  checkpoint.path_ = locate(path);
  checkpoint.manifest_ = read_manifest(checkpoint.path_);
  const std::string tokenizer_file = check_listed(checkpoint.path_, checkpoint.manifest_);
  verify_files(checkpoint.path_, checkpoint.manifest_);
  switch (checkpoint.manifest_.format) {
    case kCheckpointFormat:
      checkpoint.read(tokenizer_file);
      break;
    default:  // read_manifest() refuses what is newer; a format before gets its converter here
      throw UserError(checkpoint.path_.string() + ": checkpoint format " +
                      std::to_string(checkpoint.manifest_.format) + " is no longer read");
  }
  return checkpoint;
}

void Checkpoint::read(const std::string& tokenizer_file) {
  const auto text_of = [this](const std::string& name) { return read_file(path_ / name); };
  const auto name_of = [this](const std::string& name) { return (path_ / name).string(); };
  state_ = state_from_json(text_of(kStateFile), name_of(kStateFile));
  check_agreement(path_, manifest_, state_);
  config_ = parse_config(text_of(kConfigFile), name_of(kConfigFile)).config;
  tokenizer_ = parse_tokenizer(text_of(tokenizer_file), name_of(tokenizer_file));
  unigram_counts_ = unigram_from_bytes(text_of(kUnigramFile), name_of(kUnigramFile));
}

std::shared_ptr<TransNormer> Checkpoint::load_model(at::Device device) const {
  auto model =
      std::make_shared<TransNormer>(config_.model, model_size(config_, tokenizer_.get()), device);
  load_into(*model);
  return model;
}

void Checkpoint::load_into(TransNormer& model) const {
  read_safetensors(path_ / kModelFile, named_tensors(model));
}

void Checkpoint::load_into(AdamW& optimizer) const {
  read_safetensors(path_ / kOptimizerFile, optimizer.named_state());
  optimizer.set_updates(state_.optimizer_updates);
}

ModelSize model_size(const Config& config, const Tokenizer* tokenizer) {
  ModelSize size;
  size.max_positions = config.data.tokens_per_sample;
  size.vocab_size = config.model.vocab_size;
  if (size.vocab_size == 0) {
    size.vocab_size = tokenizer != nullptr ? tokenizer->size() : made_vocab_size(config.tokenizer);
  }
  if (size.vocab_size == 0) {
    throw UserError(
        "model.vocab_size: the size of the vocabulary is not known without its tokenizer; set "
        "model.vocab_size (or tokenizer.vocab_size)");
  }
  if (tokenizer != nullptr && size.vocab_size < tokenizer->size()) {
    throw UserError("model.vocab_size: " + format_count(size.vocab_size) +
                    " rows are too few for the " + format_count(tokenizer->size()) +
                    " tokens of the tokenizer; set 0 or at least that many");
  }
  return size;
}

}  // namespace transnormer
