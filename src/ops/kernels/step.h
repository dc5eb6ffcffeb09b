// Kernels of decoding, where a call has one token a sequence: of a CPU only. As those in kernels.h
// they are single-threaded, callers share the work out, and what a call computes does not depend on
// how it is cut.
#pragma once

#include "ops/kernels/kernels.h"

namespace transnormer::ops::kernels {

inline constexpr std::int64_t kFewRows = 16;          // that a product can have
inline constexpr std::int64_t kOutputsTogether = 16;  // a part of a product begins at a multiple

// Outputs [first, last) of x [rows, in] W [out, in]^T, with 1 to kFewRows rows. All operands are of
// one type, sums are fp32. Each output is summed in one order, whatever the other rows are.
struct FewRows {
  std::int64_t first;
  std::int64_t last;
  std::int64_t rows;
  std::int64_t in;
  std::int64_t out;
};

// Heads [first, last) of batch * heads, whose queries of one time meet the rows of a cache.
struct CachedAttention {
  std::int64_t first;
  std::int64_t last;
  std::int64_t heads;
  std::int64_t dim;
  std::int64_t keys;  // rows in the cache
  float scale;
  bool softmax;               // else ReLU
  float* scratch;             // cached_attention_scratch floats, of any values
  std::int64_t query_stride;  // elements from a batch row to the next
  std::int64_t cache_stride;  // .. of keys and values alike; their rows are heads * dim apart
};

[[nodiscard]] constexpr std::int64_t cached_attention_scratch(std::int64_t keys, std::int64_t dim) {
  return padded(keys) + padded(dim);
}

struct StepKernels {
  // y [rows, out]; a bias without data counts as zero.
  void (*product)(const FewRows&, In x, In weight, In bias, Out y);
  // y [batch, heads, dim] = weights V, weights = softmax(scale q K^T) or relu(scale q K^T).
  void (*cached_attention)(const CachedAttention&, In q, In keys, In values, Out y);
  // linear_attention of one time, without the chunk's products; not of logarithms. Where it
  // divides, key_sums are needed, and divisors are not written.
  void (*linear_attention)(const LinearAttention&, In q, In k, In v, Out out, float* state);
};

}  // namespace transnormer::ops::kernels
