// A checkpoint: a directory that is whole or absent. See the run directory in the README.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/load_by_name.h"
#include "checkpoint/manifest.h"
#include "checkpoint/training_state.h"
#include "config/config.h"
#include "model/transnormer.h"
#include "optim/optimizer.h"
#include "tokenizer/tokenizer.h"
#include "util/input_file.h"

namespace transnormer {

// Which of a checkpoint's weights: those that were trained, or their running mean (optimizer.ema).
enum class Weights { trained, ema };

// A checkpoint whose manifest has been verified: sizes and SHA-256 of every file. What is loaded
// from it later is what was verified, even where it is removed meanwhile.
class Checkpoint {
 public:
  // `path`: a checkpoint, or a run directory: its best checkpoint by validation, else its newest,
  // and another choice where the chosen one is removed by a training in that moment. Links are
  // followed once, so path() is the place itself. Throws UserError
  // where there is none, it cannot be read or is foreign; DamagedCheckpointError and
  // NewerFormatError (manifest.h) where that is the reason.
  [[nodiscard]] static Checkpoint open(const std::filesystem::path& path);

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] const Manifest& manifest() const { return manifest_; }
  [[nodiscard]] const Config& config() const { return config_; }
  [[nodiscard]] const TrainingState& state() const { return state_; }
  [[nodiscard]] std::shared_ptr<const Tokenizer> tokenizer() const { return tokenizer_; }
  [[nodiscard]] const std::vector<std::int64_t>& unigram_counts() const { return unigram_counts_; }
  // Whether it is an average of others' weights, which no training can go on from.
  [[nodiscard]] bool is_average() const { return !manifest_.averaged.empty(); }

  // A model with the saved weights. Throws UserError where it does not hold those.
  [[nodiscard]] std::shared_ptr<TransNormer> load_model(at::Device device,
                                                        Weights weights = Weights::trained) const;
  // The first half of that.
  void require(Weights weights) const;
  [[nodiscard]] bool has_average() const;
  // Every tensor by its name. Throws UserError where model or optimizer are not like the saved
  // ones, naming what is missing here or there.
  void load_into(TransNormer& model) const;
  // Of an average there is no optimizer to load.
  void load_into(Optimizer& optimizer) const;
  // `average`: WeightAverage::named(); of a checkpoint that has one.
  void load_average_into(const std::vector<NamedTensor>& average) const;
  // Throws UserError where the weights are not of just these names.
  void require_weights(const std::vector<NamedTensor>& tensors) const;
  // The weights of these names and shapes, some of the model's.
  void load_into(const std::vector<NamedTensor>& some) const;
  // What a model that need not be alike has in common with the saved one; the rest of it stays as
  // it is.
  LoadReport load_common_into(TransNormer& model) const;

 private:
  // Of a directory that holds a manifest.
  explicit Checkpoint(std::filesystem::path path);
  void read(const std::string& tokenizer_file);

  std::filesystem::path path_;
  Manifest manifest_;
  std::map<std::string, InputFile> files_;
  Config config_;
  TrainingState state_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::vector<std::int64_t> unigram_counts_;
};

}  // namespace transnormer
