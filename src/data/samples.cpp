#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>

#include "data/batches.h"
#include "util/error.h"
#include "util/philox.h"

namespace transnormer {

Samples::Samples(TokenStream stream, std::int64_t length, TokenId first_input)
    : stream_(std::move(stream)),
      length_(std::clamp<std::int64_t>(stream_.size(), 1, length)),
      first_input_(first_input),
      count_((stream_.size() + length_ - 1) / length_) {}

void Samples::append(std::int64_t index, Batch& batch) const {
  const std::int64_t begin = index * length_;
  const std::int64_t present = std::min(length_, stream_.size() - begin);
  const std::size_t row = batch.targets.size();
  const std::size_t end = row + static_cast<std::size_t>(length_);
  // What stands behind the end is masked; its inputs need only be tokens.
  batch.inputs.resize(end, first_input_);
  batch.targets.resize(end, kIgnoredTarget);
  stream_.copy(begin, present, batch.targets.data() + row);
  batch.inputs[row] = begin == 0 ? first_input_ : stream_[begin - 1];
  std::copy_n(batch.targets.data() + row, present - 1, batch.inputs.data() + row + 1);
  batch.samples += 1;
  batch.length = length_;
  batch.target_tokens += present;
}

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
