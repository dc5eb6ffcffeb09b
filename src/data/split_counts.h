#pragma once

#include <cstdint>

namespace transnormer {

// What tokenising a split counted.
struct SplitCounts {
  std::int64_t tokens = 0;   // line ends included, where they are coded
  std::int64_t types = 0;    // different tokens
  std::int64_t unknown = 0;  // tokens that are the unknown token
  std::int64_t lines = 0;
  std::int64_t bytes = 0;  // of the source
  std::int64_t words = 0;  // space-separated words of the source, line ends not among them
  bool operator==(const SplitCounts&) const = default;
};

}  // namespace transnormer
