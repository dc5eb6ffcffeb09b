// Cuts a token stream into samples.
#pragma once

#include <cstdint>

#include "data/token_stream.h"

namespace transnormer {

inline constexpr std::int64_t kIgnoredTarget = -1;

// Samples of `length` targets; inputs are the stream shifted right by one, its first input is
// `first_input`. The last short sample is kept, its missing targets masked; a stream shorter than
// one sample is a sample of just its length.
class Samples {
 public:
  Samples(TokenStream stream, std::int64_t length, TokenId first_input);

  [[nodiscard]] std::int64_t count() const { return count_; }
  [[nodiscard]] std::int64_t length() const { return length_; }
  // Writes length() inputs and targets; returns how many targets are not kIgnoredTarget.
  std::int64_t copy(std::int64_t index, std::int64_t* inputs, std::int64_t* targets) const;

 private:
  TokenStream stream_;
  std::int64_t length_;
  TokenId first_input_;
  std::int64_t count_;
};

}  // namespace transnormer
