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
};

// Throws UserError where an option is out of its range.
void check(const SamplingOptions& options);

// p = softmax(logits / temperature) over what top_k and top_p leave, in double. Equal logits rank
// by token id, lowest first.
class Sampler {
 public:
  explicit Sampler(const SamplingOptions& options) : options_(options) {}

  // Draw number `index` of a seed is a function of (seed, index) and the logits alone. Throws
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
