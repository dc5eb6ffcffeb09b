// Sums over rows without atomics, so that they are equal from run to run: every thread adds up a
// few rows, and so on until one is left.
#pragma once

#include <cstddef>

#include "ops/cuda/portable.h"

namespace transnormer::ops::cuda {

inline constexpr std::int64_t kRowsOfSum = 64;  // that a thread adds up

TRANSNORMER_DEVICE inline double value(double x) {
  return x;
}

// Element i = part * width + column of [parts, width] becomes (or is increased by) the sum of the
// part's rows of x.
template <typename T, typename S>
struct PartialSum {
  const T* x;
  S* sums;
  std::int64_t rows;
  std::int64_t stride;  // of x
  std::int64_t width;
  bool add;

  TRANSNORMER_DEVICE void operator()(std::int64_t i) const {
    const std::int64_t part = quotient(i, width);
    const std::int64_t column = i - part * width;
    const std::int64_t first = part * kRowsOfSum;
    const std::int64_t last = first + kRowsOfSum < rows ? first + kRowsOfSum : rows;
    S sum = 0;
    for (std::int64_t row = first; row < last; ++row) {
      sum += static_cast<S>(value(x[row * stride + column]));
    }
    sums[i] = add ? sums[i] + sum : sum;
  }
};

// sums[width] += the sums of the columns of x, [rows, width] with rows `stride` apart.
template <typename Launcher, typename T, typename S>
void add_sums_of_rows(const T* x, S* sums, std::int64_t rows, std::int64_t stride,
                      std::int64_t width) {
  if (rows <= kRowsOfSum) {
    Launcher::elements(rows > 0 ? width : 0, PartialSum<T, S>{x, sums, rows, stride, width, true});
    return;
  }
  const std::int64_t parts = (rows + kRowsOfSum - 1) / kRowsOfSum;
  const typename Launcher::template Workspace<S> partial(parts * width);
  Launcher::elements(parts * width,
                     PartialSum<T, S>{x, partial.data(), rows, stride, width, false});
  add_sums_of_rows<Launcher, S, S>(partial.data(), sums, parts, width, width);
}

template <typename Launcher>
void add_column_sums(In x, float* sums, std::int64_t rows, std::int64_t columns, std::int64_t first,
                     std::int64_t last) {
  by_type(x.type, [&](auto* t) {
    add_sums_of_rows<Launcher>(as(x, t) + first, sums + first, rows, columns, last - first);
  });
}

}  // namespace transnormer::ops::cuda
