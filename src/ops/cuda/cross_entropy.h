// The loss of each row of logits and its gradient in place; a row to a block of threads (see
// ops/cuda/rows.h for what a group is).
#pragma once

#include "ops/cuda/portable.h"

namespace transnormer::ops::cuda {

// log(sum(exp(x))) of a part: top + log(total).
struct LogSum {
  float top;
  float total;

  TRANSNORMER_DEVICE void add(float x) {
    if (x > top) {
      total *= expf(top - x);
      top = x;
    }
    total += expf(x - top);
  }
};

struct Join {
  TRANSNORMER_DEVICE LogSum operator()(const LogSum& a, const LogSum& b) const {
    const float top = a.top > b.top ? a.top : b.top;
    // Parts without a number have both at minus infinity, whose difference is none.
    const float at_a = a.top == top ? a.total : a.total * expf(a.top - top);
    const float at_b = b.top == top ? b.total : b.total * expf(b.top - top);
    return {top, at_a + at_b};
  }
};

template <typename T>
struct CrossEntropyRow {
  T* logits;
  const std::int64_t* targets;
  float* losses;
  std::int64_t words;
  float scale;
  bool gradient;

  template <typename Group>
  TRANSNORMER_DEVICE void operator()(const Group& group, std::int64_t row) const {
    T* x = logits + row * words;
    const std::int64_t target = targets[row];
    if (target < 0) {
      ignore(group, x, row);
      return;
    }
    const LogSum sum = group.reduce(
        [&](int thread) {
          LogSum own{-INFINITY, 0};
          for (std::int64_t i = thread; i < words; i += group.size) {
            own.add(value(x[i]));
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
    if (!gradient) {
      return;
    }
    group.each([&](int thread) {
      for (std::int64_t i = thread; i < words; i += group.size) {
        const float p = expf(value(x[i]) - log_sum);
        x[i] = rounded<T>((i == target ? p - 1.F : p) * scale);
      }
    });
  }

 private:
  template <typename Group>
  TRANSNORMER_DEVICE void ignore(const Group& group, T* x, std::int64_t row) const {
    group.each([&](int thread) {
      if (thread == 0) {
        losses[row] = 0;
      }
      for (std::int64_t i = thread; gradient && i < words; i += group.size) {
        x[i] = rounded<T>(0);
      }
    });
  }
};

inline constexpr int kCrossEntropyThreads = 512;

template <typename Launcher>
void cross_entropy(Out logits, const std::int64_t* targets, float* losses, std::int64_t rows,
                   std::int64_t words, float scale, bool gradient) {
  by_type(logits.type, [&](auto* t) {
    Launcher::blocks(rows, kCrossEntropyThreads,
                     CrossEntropyRow{as(logits, t), targets, losses, words, scale, gradient});
  });
}

}  // namespace transnormer::ops::cuda
