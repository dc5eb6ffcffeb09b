// Attention matrices as they are looked at.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>

#include "analyze/picture.h"
#include "analyze/subject.h"
#include "analyze/weights.h"

namespace transnormer {

struct AttentionMap {
  std::int64_t layer = 0;
  std::int64_t head = 0;
  std::string attention{};
  std::int64_t length = 0;  // tokens
  std::int64_t step = 1;    // tokens that a cell stands for, in each direction
  // p = |s| / sum |s| by query and key, averaged over a cell's pairs: fp64 [cells, cells].
  at::Tensor cells{};
  double entropy = 0;        // of a row of p, in nats, mean over the rows that are not zero
  double mean_distance = 0;  // sum of p |i - j| of a row, likewise
};

// A matrix of at most so many rows is not averaged.
inline constexpr std::int64_t kMostCells = 1000;

// weights: fp32 [time, time] of one head.
[[nodiscard]] AttentionMap map_of(const at::Tensor& weights);

// The selected layers' and heads' maps of the first window, one after the other.
void for_each_map(const Subject& subject, const Selection& selection,
                  const std::function<void(const AttentionMap& map)>& each);

// The darkest cells are those from the 99th percentile of what is not zero on.
[[nodiscard]] HeatMap heat_map_of(const AttentionMap& map);
// A line of the keys' first tokens, then a line for each query: its first token, its cells.
[[nodiscard]] std::string to_csv(const AttentionMap& map);

}  // namespace transnormer
