#include "generate/sampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "util/error.h"
#include "util/philox.h"

namespace transnormer {
namespace {

using Candidate = Sampler::Candidate;

[[nodiscard]] bool ranks_before(const Candidate& a, const Candidate& b) {
  return a.weight != b.weight ? a.weight > b.weight : a.id < b.id;
}

double total_weight(const std::vector<Candidate>& candidates) {
  return std::accumulate(candidates.begin(), candidates.end(), 0.0,
                         [](double sum, const Candidate& c) { return sum + c.weight; });
}

void make_candidates(std::span<const float> logits, double temperature,
                     std::vector<Candidate>& candidates) {
  const double highest = *std::max_element(logits.begin(), logits.end());
  candidates.clear();
  candidates.reserve(logits.size());
  for (std::size_t id = 0; id < logits.size(); ++id) {
    candidates.push_back(
        {std::exp((logits[id] - highest) / temperature), static_cast<TokenId>(id)});
  }
}

void keep_top_k(std::vector<Candidate>& candidates, std::int64_t k) {
  const auto kept = candidates.begin() + k;
  std::nth_element(candidates.begin(), kept - 1, candidates.end(), ranks_before);
  candidates.erase(kept, candidates.end());
}

// Takes the most likely from a heap, since few of a large vocabulary are usually enough.
void keep_top_p(std::vector<Candidate>& candidates, double p) {
  const auto ranks_after = [](const Candidate& a, const Candidate& b) {
    return ranks_before(b, a);
  };
  const double wanted = p * total_weight(candidates);
  double reached = 0;
  auto heap_end = candidates.end();
  std::make_heap(candidates.begin(), heap_end, ranks_after);
  do {
    std::pop_heap(candidates.begin(), heap_end, ranks_after);
    --heap_end;
    reached += heap_end->weight;
  } while (reached < wanted && heap_end != candidates.begin());
  candidates.erase(candidates.begin(), heap_end);
}

// In [0, 1), 53 bits.
double uniform(std::uint64_t seed, std::uint64_t sample, std::uint64_t index) {
  const PhiloxWords words =
      philox4x32(philox_key(seed),
                 {static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32),
                  static_cast<std::uint32_t>(sample), static_cast<std::uint32_t>(sample >> 32)});
  const std::uint64_t bits = (std::uint64_t{words[0]} << 32) | words[1];
  return static_cast<double>(bits >> 11) * 0x1.0p-53;
}

TokenId draw(const std::vector<Candidate>& candidates, double where) {
  double left = where * total_weight(candidates);
  const Candidate* chosen = nullptr;
  for (const Candidate& candidate : candidates) {
    if (candidate.weight <= 0) {
      continue;  // too unlikely for a double; must not be what rounding ends on
    }
    chosen = &candidate;
    left -= candidate.weight;
    if (left < 0) {
      break;
    }
  }
  return chosen->id;
}

}  // namespace

void check(const SamplingOptions& options) {
  std::vector<std::string> faults;
  if (!std::isfinite(options.temperature) || options.temperature < 0) {
    faults.emplace_back(
        "temperature must be a number of at least 0 (0 takes the most likely token)");
  }
  if (options.top_k < 0) {
    faults.emplace_back("top-k must be at least 0 (0 keeps all tokens)");
  }
  if (!(options.top_p > 0 && options.top_p <= 1)) {
    faults.emplace_back("top-p must be above 0 and at most 1 (1 keeps all tokens)");
  }
  if (!(options.repetition_penalty > 0 && options.repetition_penalty <= kMostRepetitionPenalty)) {
    faults.emplace_back("repetition-penalty must be above 0 and at most 1000 (1 is none)");
  }
  if (!faults.empty()) {
    throw UserError(faults);
  }
}

void RepetitionPenalty::see(TokenId id) {
  const auto place = static_cast<std::size_t>(id);
  if (place >= is_seen_.size()) {
    is_seen_.resize(place + 1);
  }
  if (!is_seen_[place]) {
    is_seen_[place] = true;
    seen_.push_back(id);
  }
}

void RepetitionPenalty::apply(std::span<float> logits) const {
  if (penalty_ == 1) {
    return;
  }
  for (const TokenId id : seen_) {
    float& logit = logits[static_cast<std::size_t>(id)];
    logit = static_cast<float>(logit > 0 ? logit / penalty_ : logit * penalty_);
  }
}

TokenId Sampler::sample(std::span<const float> logits, std::uint64_t index) {
  if (!std::all_of(logits.begin(), logits.end(), [](float x) { return std::isfinite(x); })) {
    throw UserError(
        "the model's logits are not finite: its training diverged; use an earlier "
        "checkpoint");
  }
  if (options_.temperature == 0) {
    return static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  }
  make_candidates(logits, options_.temperature, candidates_);
  if (options_.top_k > 0 && options_.top_k < static_cast<std::int64_t>(candidates_.size())) {
    keep_top_k(candidates_, options_.top_k);
  }
  if (options_.top_p < 1) {
    keep_top_p(candidates_, options_.top_p);
  }
  return draw(candidates_, uniform(options_.seed, options_.sample, index));
}

}  // namespace transnormer
