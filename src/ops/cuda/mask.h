// The dropout mask, by the thread (see util/philox.h for the generator and kernels::Mask).
#pragma once

#include "ops/cuda/portable.h"
#include "util/philox.h"

namespace transnormer::ops::cuda {

// The mask of one sample of a batch, ready to be asked.
class SampleMask {
 public:
  // `sample` counts from the mask's own.
  TRANSNORMER_DEVICE SampleMask(const kernels::Mask& mask, std::int64_t sample)
      : key_{mask.key_low, mask.key_high},
        sample_(mask.sample + static_cast<std::uint64_t>(sample)),
        threshold_(mask.threshold),
        scale_(mask.scale) {
    if (mask.live != nullptr) {
      key_ = philox_key(mask.seed, mask.live->update, mask.layer, mask.site);
      sample_ += mask.live->first_sample;
    }
  }

  // The words of elements 4 * group to 4 * group + 3.
  [[nodiscard]] TRANSNORMER_DEVICE PhiloxWords words(std::uint64_t group) const {
    return philox4x32(
        key_, {static_cast<std::uint32_t>(group), static_cast<std::uint32_t>(group >> 32),
               static_cast<std::uint32_t>(sample_), static_cast<std::uint32_t>(sample_ >> 32)});
  }
  // What an element is multiplied by, of its word.
  [[nodiscard]] TRANSNORMER_DEVICE float factor(std::uint32_t word) const {
    return (word >> 8) >= threshold_ ? scale_ : 0.F;
  }
  [[nodiscard]] TRANSNORMER_DEVICE float at(std::uint64_t element) const {
    return factor(words(element / 4)[element % 4]);
  }

 private:
  PhiloxKey key_;
  std::uint64_t sample_;
  std::uint32_t threshold_;
  float scale_;
};

// Groups of four that `count` elements from number `first` on touch.
TRANSNORMER_BOTH constexpr std::int64_t groups_touched(std::uint64_t first, std::int64_t count) {
  return (static_cast<std::int64_t>(first % 4) + count + 3) / 4;
}

// Calls body(i, factor of element first + i) for those of group `group` (counted from the first
// one's) that lie in [0, count).
template <typename Body>
TRANSNORMER_DEVICE void for_group(const SampleMask& mask, std::uint64_t first, std::int64_t count,
                                  std::int64_t group, Body body) {
  const PhiloxWords words = mask.words(first / 4 + static_cast<std::uint64_t>(group));
  const std::int64_t begin = 4 * group - static_cast<std::int64_t>(first % 4);
  TRANSNORMER_UNROLL
  for (int word = 0; word < 4; ++word) {
    const std::int64_t i = begin + word;
    if (i >= 0 && i < count) {
      body(i, mask.factor(words[static_cast<std::size_t>(word)]));
    }
  }
}

}  // namespace transnormer::ops::cuda
