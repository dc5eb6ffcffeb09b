// Linear attention divided by the sum of its weights: the divisors, and what they add to the
// gradients. The features are those before LRPE.
#pragma once

#include "ops/cuda/linear_chunks.h"

namespace transnormer::ops::cuda {

// sums[chunk] = the sum of the chunk's features without LRPE, [dim], each time with its weight.
struct FeatureSums {
  LinearAttention shape;
  HeadsIn x;
  const float* weights;  // [batch, time, heads]; null: 1
  float* sums;

  TRANSNORMER_DEVICE void operator()(std::int64_t i) const {
    const std::int64_t number = quotient(i, x.dim);
    const std::int64_t column = i - number * x.dim;
    const Span chunk = chunk_of(shape, number);
    float sum = 0;
    for (int row = 0; row < chunk.rows; ++row) {
      const std::int64_t time = chunk.time + row;
      const float weight =
          weights == nullptr ? 1.F : weights[divisor_place(shape, chunk.head, time)];
      sum += weight * feature_of(shape.feature, x.at(chunk.head, time, column));
    }
    sums[i] = sum;
  }
};

// Calls give(row, column, sum) with the running sums of weight(row) * feature, from `start` [dim]
// on, down a chunk's rows or, `backwards`, up. Without LRPE.
template <typename Block, typename Weight, typename Give>
TRANSNORMER_DEVICE void for_running_sums(const Block& block, const LinearAttention& shape,
                                         const HeadsIn& x, const Span& chunk, const float* start,
                                         bool backwards, Weight weight, Give give) {
  block.each([&](int thread) {
    for (int column = thread; column < x.dim; column += block.size) {
      float sum = start[column];
      for (int step = 0; step < chunk.rows; ++step) {
        const int row = backwards ? chunk.rows - 1 - step : step;
        const float raw = x.at(chunk.head, chunk.time + row, column);
        sum += weight(row) * feature_of(shape.feature, raw);
        give(row, column, sum);
      }
    }
  });
}

// divisors = max(q . sum of k, floor) of a chunk, with features without LRPE.
struct ChunkDivisors {
  LinearAttention shape;
  HeadsIn q;
  HeadsIn k;
  const float* before;  // the chunk, of the keys: [chunks, key_dim]

  static constexpr std::int64_t shared_floats(const LinearAttention& s) {
    return tile_floats(kChunk, s.key_dim);
  }

  template <typename Block>
  TRANSNORMER_DEVICE void operator()(const Block& block, std::int64_t number, float* shared) const {
    const Span chunk = chunk_of(shape, number);
    const Tile sums = Tiles(shared).take(kChunk, shape.key_dim);
    for_running_sums(
        block, shape, k, chunk, before + number * shape.key_dim, false, [](int) { return 1.F; },
        [&](int row, int column, float sum) { sums.at(row, column) = sum; });
    block.rows(chunk.rows, [&](const auto& group, int row) {
      const std::int64_t time = chunk.time + row;
      const float plain = sum_over(group, shape.key_dim, [&](std::int64_t i) {
        return feature_of(shape.feature, q.at(chunk.head, time, i)) *
               sums.at(row, static_cast<int>(i));
      });
      const bool keeps = plain > shape.floor || plain != plain;
      group.each([&](int thread) {
        if (thread == 0) {
          shape.divisors[divisor_place(shape, chunk.head, time)] = keeps ? plain : shape.floor;
        }
      });
    });
  }
};

// The gradient of a divisor, [batch, time, heads]; there is none where the floor holds.
struct DivisorSlope {
  LinearAttention shape;
  HeadsIn output;
  HeadsIn d_out;
  float* slopes;

  template <typename Group>
  TRANSNORMER_DEVICE void operator()(const Group& group, std::int64_t number) const {
    const std::int64_t head = shape.first + number / shape.time;
    const std::int64_t time = number % shape.time;
    const float along = sum_over(group, shape.value_dim, [&](std::int64_t i) {
      return output.at(head, time, i) * d_out.at(head, time, i);
    });
    const std::int64_t place = divisor_place(shape, head, time);
    const float divisor = shape.divisors[place];
    group.each([&](int thread) {
      if (thread == 0) {
        slopes[place] = divisor > shape.floor ? -along * Scalars::reciprocal(divisor) : 0.F;
      }
    });
  }
};

// What the divisors of a chunk add to the gradients of its features before LRPE: to a query's its
// slope times the sum of the keys up to it, to a key's the sum of the queries from it on, each
// times its slope.
struct DivisorGradients {
  const float* slopes;   // null: the output was not divided, and nothing is added
  const float* keys;     // the sum of the keys before each chunk, [chunks, key_dim]
  const float* queries;  // that of the queries times their slopes behind it

  template <typename Block>
  TRANSNORMER_DEVICE void of_queries(const Block& block, const LinearAttention& shape,
                                     const HeadsIn& k, const Span& chunk, std::int64_t number,
                                     const Tile& to) const {
    for_running_sums(
        block, shape, k, chunk, keys + number * shape.key_dim, false, [](int) { return 1.F; },
        [&](int row, int column, float sum) {
          to.at(row, column) = slope(shape, chunk, row) * sum;
        });
  }
  template <typename Block>
  TRANSNORMER_DEVICE void of_keys(const Block& block, const LinearAttention& shape,
                                  const HeadsIn& q, const Span& chunk, std::int64_t number,
                                  const Tile& to) const {
    for_running_sums(
        block, shape, q, chunk, queries + number * shape.key_dim, true,
        [&](int row) { return slope(shape, chunk, row); },
        [&](int row, int column, float sum) { to.at(row, column) = sum; });
  }

 private:
  [[nodiscard]] TRANSNORMER_DEVICE float slope(const LinearAttention& shape, const Span& chunk,
                                               int row) const {
    return slopes[divisor_place(shape, chunk.head, chunk.time + row)];
  }
};

}  // namespace transnormer::ops::cuda
