// The order in which samples are learned from.
#pragma once

#include <cstdint>
#include <vector>

namespace transnormer {

// One endless sequence: the epochs' permutations, each a function of (seed, epoch), one after
// another. Random access; keeps the permutation of the epoch asked last. Throws UserError for a
// number of samples that cannot be put in order.
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

}  // namespace transnormer
