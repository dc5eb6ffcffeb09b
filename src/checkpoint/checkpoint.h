// A checkpoint: a directory that is whole or absent. See the run directory in the README.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "model/transnormer.h"
#include "optim/optimizer.h"
#include "tokenizer/tokenizer.h"

namespace transnormer {

inline constexpr std::int64_t kCheckpointFormat = 1;

// Running mean and variance of one gradient norm over the iterations (Welford).
struct RunningMoments {
  std::int64_t count = 0;
  double mean = 0;
  double m2 = 0;
  void add(double value);
  [[nodiscard]] double relative_std() const;  // sqrt(m2 / count) / mean; 0 where undefined
};

// state.json: everything beside weights and optimizer that the next update depends on.
struct TrainingState {
  std::int64_t step = 0;             // updates made, skipped ones too: the data position
  std::int64_t tokens = 0;           // target tokens seen
  std::int64_t optimizer_updates = 0;  // applied
  double loss_scale = 1;             // fp16
  std::int64_t scale_growth_count = 0;
  std::int64_t skipped_updates = 0;
  std::int64_t consecutive_skips = 0;
  std::int64_t validated_step = -1;  // the last validation that counted
  double best_valid_loss = 0;        // valid where best_step >= 0
  std::int64_t best_step = -1;
  std::int64_t validations_without_gain = 0;
  bool finished = false;
  std::string finish_reason;
  double elapsed_s = 0;
  double loss_sum = 0;               // nats since the last train event, so that its mean is exact
  std::int64_t loss_tokens = 0;
  std::map<std::string, RunningMoments> gradient_moments;
  // Identity of what resuming must match or warn about.
  std::int64_t threads = 0;
  std::string device;
  std::string build;                 // program version, LibTorch version, compiler
  std::string train_data_digest;
  std::string tokenizer_digest;
};

[[nodiscard]] std::string state_to_json(const TrainingState& state);
[[nodiscard]] TrainingState state_from_json(const std::string& json, const std::string& name);

// Everything a save writes.
struct CheckpointContent {
  const Config& config;
  const TransNormer& model;
  const AdamW& optimizer;
  const TrainingState& state;
  const Tokenizer& tokenizer;
  const std::vector<std::int64_t>& unigram_counts;
};

// Writes `checkpoints/step-XXXXXXXX` under the run directory: temporary directory, flush, rename,
// then the link `latest`. Throws WriteError; the checkpoints before it stay.
std::filesystem::path save_checkpoint(const std::filesystem::path& run_dir,
                                      const CheckpointContent& content);

// A checkpoint whose manifest has been verified: sizes and SHA-256 of every file.
class Checkpoint {
 public:
  // `path`: a checkpoint, or a run directory (its `best`, else its `latest`). Throws UserError where
  // there is none, it is damaged, foreign, or of a newer format.
  [[nodiscard]] static Checkpoint open(const std::filesystem::path& path);

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] const Config& config() const { return config_; }
  [[nodiscard]] const TrainingState& state() const { return state_; }
  [[nodiscard]] std::shared_ptr<const Tokenizer> tokenizer() const { return tokenizer_; }
  [[nodiscard]] const std::vector<std::int64_t>& unigram_counts() const { return unigram_counts_; }

  // A model with the saved weights.
  [[nodiscard]] std::shared_ptr<TransNormer> load_model(at::Device device) const;
  void load_into(TransNormer& model) const;
  void load_into(AdamW& optimizer) const;

 private:
  std::filesystem::path path_;
  Config config_;
  TrainingState state_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::vector<std::int64_t> unigram_counts_;
};

// Rows of the embedding for this config and tokenizer; UserError where they do not fit or neither
// tells (tokenizer may be null: model.vocab_size, else tokenizer.vocab_size).
[[nodiscard]] ModelSize model_size(const Config& config, const Tokenizer* tokenizer);

}  // namespace transnormer
