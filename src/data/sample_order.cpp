#include "data/sample_order.h"

#include <cstdint>
#include <numeric>
#include <string>
#include <utility>

#include "util/error.h"
#include "util/philox.h"

namespace transnormer {

SampleOrder::SampleOrder(std::int64_t samples, std::uint64_t seed)
    : samples_(samples), seed_(seed) {
  if (samples <= 0 || samples > std::int64_t{UINT32_MAX}) {
    throw UserError("data: " + std::to_string(samples) +
                    " samples cannot be put in order; expected 1 to 2^32 - 1");
  }
}

std::int64_t SampleOrder::sample_at(std::int64_t position) {
  const std::int64_t epoch = position / samples_;
  if (epoch != epoch_) {
    shuffle(epoch);
  }
  return permutation_[static_cast<std::size_t>(position % samples_)];
}

// Fisher-Yates; the swap at place i is drawn by counter i, so nothing but (seed, epoch) matters.
void SampleOrder::shuffle(std::int64_t epoch) {
  constexpr std::uint64_t kDomain = 0x6F72646572;  // "order": apart from all other keys of the seed
  const PhiloxKey key = philox_key(seed_, epoch, kDomain);
  permutation_.resize(static_cast<std::size_t>(samples_));
  std::iota(permutation_.begin(), permutation_.end(), 0U);
  for (std::size_t i = permutation_.size() - 1; i > 0; --i) {
    const PhiloxWords words = philox4x32(key, {static_cast<std::uint32_t>(i), 0, 0, 0});
    std::swap(permutation_[i], permutation_[philox_below(words, i + 1)]);
  }
  epoch_ = epoch;
}

}  // namespace transnormer
