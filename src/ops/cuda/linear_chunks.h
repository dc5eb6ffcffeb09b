// The chunks that linear attention is cut into on a GPU, and what all of its kernels share.
#pragma once

#include "ops/cuda/heads.h"
#include "ops/cuda/tiles.h"

namespace transnormer::ops::cuda {

using kernels::kChunk;
using kernels::LinearAttention;
using kernels::OuterSums;

TRANSNORMER_BOTH constexpr std::int64_t chunks_of(const LinearAttention& shape) {
  return (shape.time + kChunk - 1) / kChunk;
}

// `number` is of all heads' chunks.
TRANSNORMER_DEVICE inline Span chunk_of(const LinearAttention& shape, std::int64_t number) {
  const std::int64_t chunks = chunks_of(shape);
  const std::int64_t time = number % chunks * kChunk;
  const std::int64_t rest = shape.time - time;
  return {shape.first + number / chunks, time, static_cast<int>(rest < kChunk ? rest : kChunk)};
}

// base^exponent; exact powers of single precision's numbers but for the last rounding.
TRANSNORMER_DEVICE inline float power(float base, std::int64_t exponent) {
  double result = 1;
  double square = static_cast<double>(base);
  for (; exponent > 0; exponent /= 2, square *= square) {
    result *= exponent % 2 == 1 ? square : 1;
  }
  return static_cast<float>(result);
}

// What a head's sum is multiplied with in up to kChunk steps; in memory of the block's.
class Fading {
 public:
  TRANSNORMER_BOTH static constexpr std::int64_t shared_floats(const LinearAttention& shape) {
    return shape.decay == nullptr ? 0 : kChunk + 1;
  }

  template <typename Block>
  TRANSNORMER_DEVICE Fading(const Block& block, const LinearAttention& shape, const Span& chunk,
                            Tiles& tiles)
      : rows_(chunk.rows), fades_(shape.decay != nullptr) {
    if (!fades_) {
      return;
    }
    powers_ = tiles.take(1, kChunk + 1).data;
    const float decay = shape.decay[chunk.head % shape.heads];
    block.each([&](int thread) {
      for (int i = thread; i <= kChunk; i += block.size) {
        powers_[i] = power(decay, i);
      }
    });
  }

  [[nodiscard]] TRANSNORMER_DEVICE bool fades() const { return fades_; }
  // From row j to row i; from before the chunk to row i; from row i to the chunk's end.
  [[nodiscard]] TRANSNORMER_DEVICE float between(int i, int j) const {
    return fades_ ? powers_[i - j] : 1.F;
  }
  [[nodiscard]] TRANSNORMER_DEVICE float from_before(int i) const { return powers_[i + 1]; }
  [[nodiscard]] TRANSNORMER_DEVICE float to_end(int i) const { return powers_[rows_ - 1 - i]; }

 private:
  float* powers_ = nullptr;
  int rows_;
  bool fades_;
};

// Row i of a tile times factor(i).
template <typename Block, typename Factor>
TRANSNORMER_DEVICE void scale_rows(const Block& block, int rows, std::int64_t columns,
                                   const Tile& tile, Factor factor) {
  for_elements(block, rows, static_cast<int>(columns),
               [&](int i, int j) { tile.at(i, j) *= factor(i); });
}

// Of a time's divisor, and of what else is [batch, time, heads].
TRANSNORMER_DEVICE inline std::int64_t divisor_place(const LinearAttention& shape,
                                                     std::int64_t head, std::int64_t time) {
  return (head / shape.heads * shape.time + time) * shape.heads + head % shape.heads;
}

// Rows of gradients of outputs that were divided become those of the sums.
template <typename Block>
TRANSNORMER_DEVICE void divide_rows(const Block& block, const LinearAttention& shape,
                                    const Span& chunk, std::int64_t columns, const Tile& tile) {
  scale_rows(block, chunk.rows, columns, tile, [&](int i) {
    return Scalars::reciprocal(shape.divisors[divisor_place(shape, chunk.head, chunk.time + i)]);
  });
}

// The sizes of what its passes work with, in elements.
inline std::int64_t chunk_count(const LinearAttention& shape) {
  return (shape.last - shape.first) * chunks_of(shape);
}
inline std::int64_t states_of(const LinearAttention& shape) {
  return chunk_count(shape) * shape.key_dim * shape.value_dim;
}
inline std::int64_t features_of(const LinearAttention& shape) {
  return chunk_count(shape) * shape.key_dim;
}
// [batch, time, heads], of all batch rows that are touched.
inline std::int64_t times_of(const LinearAttention& shape) {
  return (shape.last + shape.heads - 1) / shape.heads * shape.time * shape.heads;
}

}  // namespace transnormer::ops::cuda
