// The loss of each row of logits and its gradient in place; a row to a block of threads (see
// ops/cuda/rows.h for what a group is).
#pragma once

#include <type_traits>

#include "ops/cuda/portable.h"

namespace transnormer::ops::cuda {

// Neighbours that are read and written at once.
template <typename T, int width>
struct alignas(sizeof(T) * width) Pack {
  T x[width];
};

// To single precision for logits in single precision; for others, which are a hundred times as
// coarse, by the GPU's own instruction.
template <typename T>
TRANSNORMER_DEVICE float exponential(float x) {
#if defined(__CUDACC__)
  if constexpr (sizeof(T) < sizeof(float)) {
    return __expf(x);
  }
#endif
  return expf(x);
}

// log(sum(exp(x))) of a part: top + log(total).
template <typename T>
struct LogSum {
  float top;
  float total;

  template <int width>
  TRANSNORMER_DEVICE void add(const Pack<T, width>& pack) {
    float highest = top;
    TRANSNORMER_UNROLL
    for (int i = 0; i < width; ++i) {
      const float x = value(pack.x[i]);
      highest = x > highest ? x : highest;
    }
    if (highest > top) {
      total *= exponential<T>(top - highest);
      top = highest;
    }
    TRANSNORMER_UNROLL
    for (int i = 0; i < width; ++i) {
      total += exponential<T>(value(pack.x[i]) - top);
    }
  }
};

struct Join {
  template <typename T>
  TRANSNORMER_DEVICE LogSum<T> operator()(const LogSum<T>& a, const LogSum<T>& b) const {
    const float top = a.top > b.top ? a.top : b.top;
    // Parts without a number have both at minus infinity, whose difference is none.
    const float at_a = a.top == top ? a.total : a.total * expf(a.top - top);
    const float at_b = b.top == top ? b.total : b.total * expf(b.top - top);
    return {top, at_a + at_b};
  }
};

template <typename T, int width>
struct CrossEntropyRow {
  T* logits;
  const std::int64_t* targets;
  float* losses;
  std::int64_t words;  // a multiple of `width`
  const float* scale;  // null: no gradient

  template <typename Group>
  TRANSNORMER_DEVICE void operator()(const Group& group, std::int64_t row) const {
    using Words = Pack<T, width>;
    T* x = logits + row * words;
    Words* packs = reinterpret_cast<Words*>(x);
    const std::int64_t count = words / width;
    const std::int64_t target = targets[row];
    if (target < 0) {
      ignore(group, packs, count, row);
      return;
    }
    const LogSum<T> sum = group.reduce(
        [&](int thread) {
          LogSum<T> own{-INFINITY, 0};
          for (std::int64_t i = thread; i < count; i += group.size) {
            own.add(packs[i]);
          }
          return own;
        },
        Join{});
    const float log_sum = sum.top + logf(sum.total);
    group.each([&](int thread) {
      if (thread == 0) {
        losses[row] = log_sum - value(x[target]);
      }
    });
    if (scale == nullptr) {
      return;
    }
    const float factor = *scale;
    group.each([&](int thread) {
      for (std::int64_t i = thread; i < count; i += group.size) {
        Words pack = packs[i];
        TRANSNORMER_UNROLL
        for (int j = 0; j < width; ++j) {
          const float p = exponential<T>(value(pack.x[j]) - log_sum);
          pack.x[j] = rounded<T>((i * width + j == target ? p - 1.F : p) * factor);
        }
        packs[i] = pack;
      }
    });
  }

 private:
  template <typename Group>
  TRANSNORMER_DEVICE void ignore(const Group& group, Pack<T, width>* packs, std::int64_t count,
                                 std::int64_t row) const {
    group.each([&](int thread) {
      if (thread == 0) {
        losses[row] = 0;
      }
      for (std::int64_t i = thread; scale != nullptr && i < count; i += group.size) {
        packs[i] = {};
      }
    });
  }
};

inline constexpr int kCrossEntropyThreads = 512;
inline constexpr int kPackBytes = 16;

template <typename Launcher>
void cross_entropy(Out logits, const std::int64_t* targets, float* losses, std::int64_t rows,
                   std::int64_t words, const float* scale) {
  by_type(logits.type, [&](auto* t) {
    using T = std::remove_pointer_t<decltype(t)>;
    constexpr int kWidth = kPackBytes / sizeof(T);
    const auto launch = [&](auto body) { Launcher::blocks(rows, kCrossEntropyThreads, body); };
    if (words % kWidth == 0 && reinterpret_cast<std::uintptr_t>(logits.data) % kPackBytes == 0) {
      launch(CrossEntropyRow<T, kWidth>{as(logits, t), targets, losses, words, scale});
    } else {
      launch(CrossEntropyRow<T, 1>{as(logits, t), targets, losses, words, scale});
    }
  });
}

}  // namespace transnormer::ops::cuda
