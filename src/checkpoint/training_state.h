// state.json: where a training stands, beside weights and optimizer.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

namespace transnormer {

// Running mean and variance of one gradient norm over the iterations (Welford).
struct RunningMoments {
  std::int64_t count = 0;
  double mean = 0;
  double m2 = 0;
  void add(double value);
  [[nodiscard]] double relative_std() const;  // sqrt(m2 / count) / mean; 0 where undefined
  bool operator==(const RunningMoments&) const = default;
};

// Everything beside weights and optimizer that the next update depends on.
struct TrainingState {
  std::int64_t step = 0;               // updates made, skipped ones too
  std::int64_t tokens = 0;             // target tokens seen
  std::int64_t optimizer_updates = 0;  // applied
  double loss_scale = 1;               // fp16
  std::int64_t scale_growth_count = 0;
  std::int64_t skipped_updates = 0;
  std::int64_t consecutive_skips = 0;
  std::int64_t validated_step = -1;                  // the last validation that counted
  double best_valid_loss = 0;                        // valid where best_step >= 0
  std::map<std::string, double> best_valid_figures;  // of the same validation, by name
  std::int64_t best_step = -1;
  std::int64_t validations_without_gain = 0;
  bool finished = false;
  std::string finish_reason;
  // After divergences (train/retry.h): how often, and how far ahead of `step` the data are.
  std::int64_t divergence_retries = 0;
  std::int64_t samples_passed_over = 0;
  std::int64_t micro_batch_size = 0;  // that the run chose by itself; 0: none
  double elapsed_s = 0;
  double loss_sum = 0;  // nats since the last train event, so that its mean is exact
  std::int64_t loss_tokens = 0;
  std::vector<double> metric_sums;  // of the task, since then too
  // Windows of updates by which divergence is judged (train/divergence.h): nats a token.
  double window_loss_sum = 0;  // over the updates of the present window
  std::int64_t window_updates = 0;
  double former_window_loss = std::numeric_limits<double>::quiet_NaN();  // mean; NaN: none yet
  std::int64_t low_loss_step = 0;  // until when the loss was that of a sound training
  std::map<std::string, RunningMoments> gradient_moments;
  // Identity of what resuming must match or warn about.
  std::int64_t threads = 0;
  std::int64_t ranks = 1;
  std::string device;
  std::string build;  // program version, LibTorch version, compiler
  std::string train_data_digest;
  std::string valid_data_digest;                // what the validations that count were made on
  std::int64_t validation_context_window = -1;  // and with; -1: not known
  std::int64_t validation_tokens = 0;           // the first so many of it; 0: all
  std::string tokenizer_digest;
  std::string initial_weights_digest;  // SHA-256 of what it began with (train.init_from); or empty
};

// Numbers come back bit for bit; what is not finite is written as null and read as not-a-number.
[[nodiscard]] std::string state_to_json(const TrainingState& state);
// A field that is missing gets its default, so that checkpoints of versions before it can be read;
// of a count and its sum (best_step and best_valid_loss too) one alone counts as missing. Required
// are those without which going on would be wrong in silence: `step` (the place in the data),
// `tokens` (which the manifest repeats), `optimizer_updates` (the bias correction) and
// `train_data_digest` (that the data are the same). `name` stands in messages. Throws
// DamagedCheckpointError for what is required and missing, and for what is of a wrong type.
[[nodiscard]] TrainingState state_from_json(const std::string& json, const std::string& name);

}  // namespace transnormer
