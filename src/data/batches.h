// From a token stream to training batches: samples, their order, prefetching.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "data/token_stream.h"

namespace transnormer {

inline constexpr std::int64_t kIgnoredTarget = -1;

// A group of samples: row-major [samples, tokens_per_sample].
struct Batch {
  std::int64_t samples = 0;
  std::int64_t length = 0;
  std::int64_t first_position = 0;  // in the endless sequence of samples, of the first row
  std::int64_t target_tokens = 0;   // targets that are not masked
  std::vector<std::int64_t> inputs;
  std::vector<std::int64_t> targets;  // kIgnoredTarget where there is none
};

// Cuts a stream into samples of `length` targets; inputs are the stream shifted right by one, its
// first input is `first_input`. The last short sample is kept, its missing targets masked; a stream
// shorter than one sample is a sample of just its length.
class Samples {
 public:
  Samples(TokenStream stream, std::int64_t length, TokenId first_input);

  [[nodiscard]] std::int64_t count() const { return count_; }
  [[nodiscard]] std::int64_t length() const { return length_; }
  // Appends sample `index` as a row of the batch.
  void append(std::int64_t index, Batch& batch) const;

 private:
  TokenStream stream_;
  std::int64_t length_;
  TokenId first_input_;
  std::int64_t count_;
};

// One endless sequence: the epochs' permutations, each a function of (seed, epoch), one after
// another. Random access; keeps the permutation of the epoch asked last.
class SampleOrder {
 public:
  SampleOrder(std::int64_t samples, std::uint64_t seed);
  [[nodiscard]] std::int64_t sample_at(std::int64_t position);

 private:
  void shuffle(std::int64_t epoch);

  std::int64_t samples_;
  std::uint64_t seed_;
  std::int64_t epoch_ = -1;
  std::vector<std::uint32_t> permutation_;
};

// The micro-batches of all updates from `first_update` on, made by a thread of its own a few
// updates ahead (one, where updates are large). Update s holds positions [s·G, (s+1)·G), G =
// global_batch_size, cut into micro-batches in order. Failures of the thread are thrown by next().
class BatchLoader {
 public:
  struct Options {
    std::int64_t global_batch_size = 1;
    std::int64_t micro_batch_size = 1;
    std::uint64_t seed = 1;
    std::int64_t first_update = 0;
  };
  BatchLoader(Samples samples, const Options& options);
  ~BatchLoader();

  // Bytes of all updates that are held at a time, the one in use too, of samples of this length.
  [[nodiscard]] static double held_bytes(const Options& options, std::int64_t length);

  // All micro-batches of the next update.
  [[nodiscard]] std::vector<Batch> next_update();
  // Seconds that next_update() has waited, in all.
  [[nodiscard]] double waited_seconds() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace transnormer
