#include "data/samples.h"

#include <algorithm>
#include <utility>

namespace transnormer {

Samples::Samples(TokenStream stream, std::int64_t length, TokenId first_input)
    : stream_(std::move(stream)),
      length_(std::clamp<std::int64_t>(stream_.size(), 1, length)),
      first_input_(first_input),
      count_((stream_.size() + length_ - 1) / length_) {}

std::int64_t Samples::copy(std::int64_t index, std::int64_t* inputs, std::int64_t* targets) const {
  const std::int64_t begin = index * length_;
  const std::int64_t present = std::min(length_, stream_.size() - begin);
  stream_.copy(begin, present, targets);
  inputs[0] = begin == 0 ? first_input_ : stream_[begin - 1];
  std::copy_n(targets, present - 1, inputs + 1);
  // What stands behind the end is masked; its inputs need only be tokens.
  std::fill(inputs + present, inputs + length_, first_input_);
  std::fill(targets + present, targets + length_, kIgnoredTarget);
  return present;
}

}  // namespace transnormer
