// The loss of each row of logits and its gradient in place; a row to a block of threads (see
// ops/cuda/rows.h for what a group is).
#pragma once

#include <type_traits>

#include "ops/cuda/portable.h"

namespace transnormer::ops::cuda {

// Neighbours that are read and written at once.
template <typename T, int width>
struct alignas(sizeof(T) * width) Pack {
  static constexpr int size = width;
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

// `width` elements at once, which the rows' places must be a multiple of; one by one behind the
// last whole pack.
template <typename T, int width>
struct CrossEntropyRow {
  T* logits;
  const std::int64_t* targets;
  float* losses;
  std::int64_t vocab_size;
  std::int64_t stride;  // from one row to the next
  const float* scale;   // null: no gradient

  template <typename Group>
  TRANSNORMER_DEVICE void operator()(const Group& group, std::int64_t row) const {
    T* x = logits + row * stride;
    const std::int64_t target = targets[row];
    if (target < 0) {
      ignore(group, x, row);
      return;
    }
    const LogSum<T> sum = group.reduce(
        [&](int thread) {
          LogSum<T> own{-INFINITY, 0};
          for_packs(group, x, thread, [&](const auto& pack, std::int64_t) { own.add(pack); });
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
      for_packs(group, x, thread, [&](auto& place, std::int64_t first) {
        auto pack = place;
        TRANSNORMER_UNROLL
        for (int j = 0; j < pack.size; ++j) {
          const float p = exponential<T>(value(pack.x[j]) - log_sum);
          pack.x[j] = rounded<T>((first + j == target ? p - 1.F : p) * factor);
        }
        place = pack;
      });
    });
  }

 private:
  template <typename Group>
  TRANSNORMER_DEVICE void ignore(const Group& group, T* x, std::int64_t row) const {
    group.each([&](int thread) {
      if (thread == 0) {
        losses[row] = 0;
      }
      if (scale != nullptr) {
        for_packs(group, x, thread, [](auto& pack, std::int64_t) { pack = {}; });
      }
    });
  }

  // Calls body(pack, number of its first element) for a thread's share of a row.
  template <typename Group, typename Body>
  TRANSNORMER_DEVICE void for_packs(const Group& group, T* x, int thread, const Body& body) const {
    auto* packs = reinterpret_cast<Pack<T, width>*>(x);
    const std::int64_t count = vocab_size / width;
    for (std::int64_t i = thread; i < count; i += group.size) {
      body(packs[i], i * width);
    }
    if constexpr (width > 1) {
      auto* single = reinterpret_cast<Pack<T, 1>*>(x);
      for (std::int64_t i = count * width + thread; i < vocab_size; i += group.size) {
        body(single[i], i);
      }
    }
  }
};

inline constexpr int kCrossEntropyThreads = 512;
inline constexpr int kPackBytes = 16;

template <typename Launcher>
void cross_entropy(Out logits, const std::int64_t* targets, float* losses, std::int64_t rows,
                   std::int64_t vocab_size, std::int64_t stride, const float* scale) {
  by_type(logits.type, [&](auto* t) {
    using T = std::remove_pointer_t<decltype(t)>;
    constexpr int kWidth = kPackBytes / sizeof(T);
    const auto launch = [&](auto body) { Launcher::blocks(rows, kCrossEntropyThreads, body); };
    if (stride % kWidth == 0 && reinterpret_cast<std::uintptr_t>(logits.data) % kPackBytes == 0) {
      launch(CrossEntropyRow<T, kWidth>{as(logits, t), targets, losses, vocab_size, stride, scale});
    } else {
      launch(CrossEntropyRow<T, 1>{as(logits, t), targets, losses, vocab_size, stride, scale});
    }
  });
}

}  // namespace transnormer::ops::cuda
