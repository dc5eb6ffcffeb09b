#include "ops/kernels/functions.h"
#include "ops/kernels/simd.h"

namespace transnormer::ops::kernels::TRANSNORMER_ISA {
namespace {

constexpr float kLowest = -__builtin_inff();
constexpr std::int64_t kStretch = 1024;  // stays in the first-level cache between two readings

float value(const float* p) {
  return *p;
}
float value(const Bf16* p) {
  return __builtin_bit_cast(float, std::uint32_t{p->bits} << 16);
}

template <typename T>
float highest(const T* x, std::int64_t count) {
  F best = splat(kLowest);
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    best = maximum(load(x + i), best);
  }
  float result = maximum(best);
  for (; i < count; ++i) {
    result = value(x + i) > result ? value(x + i) : result;
  }
  return result;
}

template <typename T>
float sum_of_exp(const T* x, std::int64_t count, float shift) {
  F sums{};
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    sums += exp(load(x + i) - shift);
  }
  if (i < count) {
    const F rest = exp(load(x + i, count - i) - shift);
    const I wanted = iota() < static_cast<std::int32_t>(count - i);
    sums += wanted ? rest : F{};
  }
  return sum(sums);
}

// log(sum(exp(x))) in one reading: the sum follows the maximum so far, part by part.
template <typename T>
float log_sum_exp(const T* x, std::int64_t count) {
  float top = kLowest;
  double total = 0;
  for (std::int64_t i = 0; i < count; i += kStretch) {
    const std::int64_t n = count - i < kStretch ? count - i : kStretch;
    const float here = highest(x + i, n);
    if (here > top) {
      total *= __builtin_exp(static_cast<double>(top) - static_cast<double>(here));
      top = here;
    }
    total += static_cast<double>(sum_of_exp(x + i, n, top));
  }
  return top + static_cast<float>(__builtin_log(total));
}

template <typename T>
void gradient_of_row(T* x, std::int64_t count, float log_sum, std::int64_t target, float scale) {
  const float at_target = (__builtin_expf(value(x + target) - log_sum) - 1) * scale;
  for (std::int64_t i = 0; i < count; i += kLanes) {
    store(x + i, exp(load(x + i, count - i) - log_sum) * scale, count - i);
  }
  store(x + target, splat(at_target), 1);
}

template <typename T>
void rows_of(T* logits, const std::int64_t* targets, float* losses, std::int64_t rows,
             std::int64_t vocab_size, std::int64_t stride, const float* scale) {
  for (std::int64_t row = 0; row < rows; ++row, logits += stride) {
    const std::int64_t target = targets[row];
    if (target < 0) {
      losses[row] = 0;
      for (std::int64_t i = 0; scale != nullptr && i < vocab_size; i += kLanes) {
        store(logits + i, F{}, vocab_size - i);
      }
      continue;
    }
    const float log_sum = log_sum_exp(logits, vocab_size);
    losses[row] = log_sum - value(logits + target);
    if (scale != nullptr) {
      gradient_of_row(logits, vocab_size, log_sum, target, *scale);
    }
  }
}

}  // namespace

void cross_entropy(Out logits, const std::int64_t* targets, float* losses, std::int64_t rows,
                   std::int64_t vocab_size, std::int64_t stride, const float* scale) {
  by_type(logits.type, [&](auto* t) {
    rows_of(as(logits, t), targets, losses, rows, vocab_size, stride, scale);
  });
}

}  // namespace transnormer::ops::kernels::TRANSNORMER_ISA
