// Chooses the next token from a model's logits.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace transnormer {

struct SamplingOptions {
  double temperature = 1;  // 0: the most likely token
  std::int64_t top_k = 0;  // only the k most likely tokens; 0: all
  double top_p = 1;        // of those, the fewest most likely ones whose probabilities reach p
  std::uint64_t seed = 1;
  // Number of the text that is drawn: each number is a stream of draws of its own.
  std::uint64_t sample = 0;
  // Of tokens that the text holds already; 1: off.
  double repetition_penalty = 1;
};

inline constexpr double kMostRepetitionPenalty = 1000;

// Throws UserError where an option is out of its range.
void check(const SamplingOptions& options);

// Makes tokens less likely that a text holds: a logit of theirs is divided by the penalty where it
// is positive, else multiplied with it. "CTRL", Keskar et al. 2019, as it is used since: theirs
// divides negative ones, too, which makes those more likely.
class RepetitionPenalty {
 public:
  explicit RepetitionPenalty(double penalty) : penalty_(penalty) {}

  void see(TokenId id);
  // Each token once, however often it was seen. Leaves every bit where the penalty is 1.
  void apply(std::span<float> logits) const;

 private:
  double penalty_;
  std::vector<TokenId> seen_;    // each once
  std::vector<bool> is_seen_{};  // by id
};

// p = softmax(logits / temperature) over what top_k and top_p leave, in double. Equal logits rank
// by token id, lowest first.
class Sampler {
 public:
  explicit Sampler(const SamplingOptions& options) : options_(options) {}

  // Draw number `index` is a function of (seed, sample, index) and the logits alone. Throws
  // UserError where a logit is not finite.
  [[nodiscard]] TokenId sample(std::span<const float> logits, std::uint64_t index);

  struct Candidate {
    double weight;  // exp((logit - highest) / temperature)
    TokenId id;
  };

 private:
  SamplingOptions options_;
  std::vector<Candidate> candidates_;  // kept for their memory
};

}  // namespace transnormer
