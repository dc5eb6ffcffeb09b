// Chunked causal linear attention; the formulas stand in
// ops/attention/linear_attention_tensor.h. All chunks at once: their own sums of k v^T, then the
// sums before each chunk, then the outputs. With decay, tiles fade in place between the products;
// a division has kernels of its own for the divisors and for what they add to the gradients.
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

// sums[chunk] = a^T b over the chunk's rows, [a_dim, b_dim], as the sums behind the chunk have it:
// a, b being keys and values; or, `backwards`, as those before it: queries and gradients.
struct ChunkSums {
  LinearAttention shape;
  HeadsIn a;
  HeadsIn b;
  float* sums;
  bool backwards;

  static constexpr std::int64_t shared_floats(const LinearAttention& s) {
    return tile_floats(kChunk, s.key_dim) + tile_floats(kChunk, s.value_dim) +
           Fading::shared_floats(s);
  }

  template <typename Block>
  TRANSNORMER_DEVICE void operator()(const Block& block, std::int64_t number, float* shared) const {
    const Span chunk = chunk_of(shape, number);
    Tiles tiles(shared);
    const Tile left = tiles.take(kChunk, a.dim);
    const Tile right = tiles.take(kChunk, b.dim);
    read_encoded(block, shape.feature, shape.lrpe, a, chunk, 1, left);
    read_rows(block, b, chunk, right);
    const Fading fading(block, shape, chunk, tiles);
    if (fading.fades()) {
      scale_rows(block, chunk.rows, b.dim, right,
                 [&](int i) { return backwards ? fading.from_before(i) : fading.to_end(i); });
    }
    if (backwards && shape.divides) {
      divide_rows(block, shape, chunk, b.dim, right);
    }
    float* sum = sums + number * a.dim * b.dim;
    product(
        block, static_cast<int>(a.dim), static_cast<int>(b.dim),
        [&](int i, int j, float x) { sum[i * b.dim + j] = x; },
        Term{chunk.rows, [&](int i, int k) { return left.at(k, i); },
             [&](int k, int j) { return right.at(k, j); }});
  }
};

// Each chunk's sum becomes the sum of those before it (or, `backwards`, behind it).
struct SumsBefore {
  LinearAttention shape;
  float* sums;
  const float* start;     // the sum before all of them; null: zero
  float* end;             // where that of all goes; may be null
  std::int64_t elements;  // of a sum
  bool backwards;

  TRANSNORMER_DEVICE void operator()(std::int64_t i) const {
    const std::int64_t head = quotient(i, elements);
    const std::int64_t element = i - head * elements;
    const std::int64_t last = chunks_of(shape) - 1;
    float past_whole = 1, past_last = 1;
    if (shape.decay != nullptr) {
      const float decay = shape.decay[(shape.first + head) % shape.heads];
      past_whole = power(decay, kChunk);
      past_last = power(decay, shape.time - last * kChunk);
    }
    float sum = start == nullptr ? 0.F : start[i];
    float* place = sums + (head * (last + 1) + (backwards ? last : 0)) * elements + element;
    const std::int64_t step = backwards ? -elements : elements;
    const std::int64_t shorter = backwards ? 0 : last;
    for (std::int64_t c = 0; c <= last; ++c, place += step) {
      const float own = *place;
      *place = sum;
      sum = sum * (c == shorter ? past_last : past_whole) + own;
    }
    if (end != nullptr) {
      end[i] = sum;
    }
  }
};

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

TRANSNORMER_DEVICE inline float if_lower(int i, int j, float x, const Fading& fading) {
  return j <= i ? x * fading.between(i, j) : 0.F;
}

// O = Q S + tril(Q K^T) V of a chunk, for up to kTileSide columns of the values.
struct ChunkOutput {
  LinearAttention shape;
  HeadsIn q;
  HeadsIn k;
  HeadsIn v;
  HeadsOut out;
  const float* before;
  std::int64_t parts;  // of a chunk's columns

  static constexpr std::int64_t shared_floats(const LinearAttention& s) {
    return tile_floats(kChunk, s.key_dim) + tile_floats(kChunk, shared_columns(s)) +
           tile_floats(kChunk, kChunk) + tile_floats(s.key_dim, kTileSide) +
           Fading::shared_floats(s);
  }

  template <typename Block>
  TRANSNORMER_DEVICE void operator()(const Block& block, std::int64_t number, float* shared) const {
    const Span chunk = chunk_of(shape, number / parts);
    const int rows = chunk.rows;
    const int key_dim = static_cast<int>(shape.key_dim);
    const int first = static_cast<int>(number % parts) * kTileSide;
    const int rest = static_cast<int>(shape.value_dim) - first;
    const int columns = rest < kTileSide ? rest : kTileSide;
    Tiles tiles(shared);
    const Tile query = tiles.take(kChunk, key_dim);
    const Tile key = tiles.take(kChunk, shared_columns(shape));
    const Tile& values = key;  // once the scores are there
    const Tile scores = tiles.take(kChunk, kChunk);
    const Tile sum = tiles.take(key_dim, kTileSide);
    const Fading fading(block, shape, chunk, tiles);
    read_encoded(block, shape.feature, shape.lrpe, q, chunk, 1, query);
    read_encoded(block, shape.feature, shape.lrpe, k, chunk, 1, key);
    const float* state = before + number / parts * shape.key_dim * shape.value_dim + first;
    for_elements(block, key_dim, columns,
                 [&](int i, int j) { sum.at(i, j) = state[i * shape.value_dim + j]; });
    product(
        block, rows, rows,
        [&](int i, int j, float x) { scores.at(i, j) = if_lower(i, j, x, fading); },
        Term{key_dim, [&](int i, int d) { return query.at(i, d); },
             [&](int d, int j) { return key.at(j, d); }});
    for_elements(block, rows, columns, [&](int i, int j) {
      values.at(i, j) = v.at(chunk.head, chunk.time + i, first + j);
    });
    if (fading.fades()) {
      scale_rows(block, rows, key_dim, query, [&](int i) { return fading.from_before(i); });
    }
    product(
        block, rows, columns,
        [&](int i, int j, float x) {
          const std::int64_t time = chunk.time + i;
          if (shape.divides) {
            x *= Scalars::reciprocal(shape.divisors[divisor_place(shape, chunk.head, time)]);
          }
          out.set(chunk.head, time, first + j, x);
        },
        Term{key_dim, [&](int i, int d) { return query.at(i, d); },
             [&](int d, int j) { return sum.at(d, j); }},
        Term{rows, [&](int i, int t) { return scores.at(i, t); },
             [&](int t, int j) { return values.at(t, j); }});
  }

 private:
  // Of the tile that holds keys first, then values.
  TRANSNORMER_BOTH static constexpr std::int64_t shared_columns(const LinearAttention& s) {
    return s.key_dim > kTileSide ? s.key_dim : kTileSide;
  }
};

// d(q), d(k) and d(v) of a chunk, with S before it and D behind it.
struct ChunkGradients {
  LinearAttention shape;
  HeadsIn q;
  HeadsIn k;
  HeadsIn v;
  HeadsIn d_out;
  HeadsOut d_q;
  HeadsOut d_k;
  HeadsOut d_v;
  const float* before;
  const float* behind;
  DivisorGradients of_divisors;
  double* theta_parts;  // [chunks, 2, key_dim / 2]; null where there is no LRPE

  static constexpr std::int64_t shared_floats(const LinearAttention& s) {
    return 3 * tile_floats(kChunk, s.key_dim) + 2 * tile_floats(kChunk, s.value_dim) +
           tile_floats(kChunk, kChunk) + tile_floats(s.key_dim, s.value_dim) +
           Fading::shared_floats(s);
  }

  template <typename Block>
  TRANSNORMER_DEVICE void operator()(const Block& block, std::int64_t number, float* shared) const {
    const Span chunk = chunk_of(shape, number);
    const int rows = chunk.rows;
    const int key_dim = static_cast<int>(shape.key_dim);
    const int value_dim = static_cast<int>(shape.value_dim);
    Tiles tiles(shared);
    const Tile query = tiles.take(kChunk, key_dim);
    const Tile key = tiles.take(kChunk, key_dim);
    const Tile values = tiles.take(kChunk, value_dim);
    const Tile gradient = tiles.take(kChunk, value_dim);
    const Tile scores = tiles.take(kChunk, kChunk);  // tril(Q K^T), then tril(dO V^T)
    const Tile sum = tiles.take(key_dim, value_dim);
    const Tile result = tiles.take(kChunk, key_dim);
    const Fading fading(block, shape, chunk, tiles);
    read_encoded(block, shape.feature, shape.lrpe, q, chunk, 1, query);
    read_encoded(block, shape.feature, shape.lrpe, k, chunk, 1, key);
    read_rows(block, v, chunk, values);
    read_rows(block, d_out, chunk, gradient);
    if (shape.divides) {
      divide_rows(block, shape, chunk, value_dim, gradient);
    }
    const auto read_sum = [&](const float* sums) {
      const float* own = sums + number * shape.key_dim * shape.value_dim;
      for_elements(block, key_dim, value_dim,
                   [&](int i, int j) { sum.at(i, j) = own[i * value_dim + j]; });
    };
    const auto give_score = [&](int i, int j, float x) {
      scores.at(i, j) = if_lower(i, j, x, fading);
    };
    const auto give_result = [&](int i, int j, float x) { result.at(i, j) = x; };

    read_sum(behind);
    product(block, rows, rows, give_score,
            Term{key_dim, [&](int i, int d) { return query.at(i, d); },
                 [&](int d, int j) { return key.at(j, d); }});
    const Tile to_end = fading.fades() ? result : key;
    if (fading.fades()) {
      for_elements(block, rows, key_dim,
                   [&](int i, int j) { to_end.at(i, j) = key.at(i, j) * fading.to_end(i); });
    }
    product(
        block, rows, value_dim,
        [&](int i, int j, float x) { d_v.set(chunk.head, chunk.time + i, j, x); },
        Term{key_dim, [&](int i, int d) { return to_end.at(i, d); },
             [&](int d, int j) { return sum.at(d, j); }},
        Term{rows, [&](int i, int t) { return scores.at(t, i); },
             [&](int t, int j) { return gradient.at(t, j); }});
    product(block, rows, rows, give_score,
            Term{value_dim, [&](int i, int d) { return gradient.at(i, d); },
                 [&](int d, int j) { return values.at(j, d); }});
    if (fading.fades()) {
      scale_rows(block, rows, value_dim, values, [&](int i) { return fading.to_end(i); });
      scale_rows(block, rows, value_dim, gradient, [&](int i) { return fading.from_before(i); });
    }
    product(block, rows, key_dim, give_result,
            Term{value_dim, [&](int i, int d) { return values.at(i, d); },
                 [&](int d, int j) { return sum.at(j, d); }},
            Term{rows, [&](int i, int t) { return scores.at(t, i); },
                 [&](int t, int j) { return query.at(t, j); }});
    const Tile& added = query;  // which no product needs any more
    const auto beside = [&](int row, std::int64_t i) {
      return shape.divides ? added.at(row, static_cast<int>(i)) : 0.F;
    };
    if (shape.divides) {
      of_divisors.of_keys(block, shape, q, chunk, number, added);
    }
    write_decoded(block, shape.feature, shape.lrpe, k, chunk, 1, result, d_k, theta_part(number, 1),
                  beside);
    read_sum(before);
    product(block, rows, key_dim, give_result,
            Term{value_dim, [&](int i, int d) { return gradient.at(i, d); },
                 [&](int d, int j) { return sum.at(j, d); }},
            Term{rows, [&](int i, int t) { return scores.at(i, t); },
                 [&](int t, int j) { return key.at(t, j); }});
    if (shape.divides) {
      of_divisors.of_queries(block, shape, k, chunk, number, added);
    }
    write_decoded(block, shape.feature, shape.lrpe, q, chunk, 1, result, d_q, theta_part(number, 0),
                  beside);
  }

 private:
  [[nodiscard]] TRANSNORMER_DEVICE ThetaPart theta_part(std::int64_t number, int which) const {
    return theta_parts == nullptr ? nullptr
                                  : theta_parts + (2 * number + which) * (shape.key_dim / 2);
  }
};

template <typename Launcher>
struct LinearAttentions {
  using Sums = typename Launcher::template Workspace<float>;

  static void forward(const LinearAttention& given, In q, In k, In v, Out out, float* state) {
    const HeadsIn key = heads(given, k, given.key_dim, given.strides.k);
    const HeadsIn value = heads(given, v, given.value_dim, given.strides.v);
    const HeadsIn query = heads(given, q, given.key_dim, given.strides.q);
    const bool wants = out.data != nullptr;
    const Sums divisors(given.divides && wants && given.divisors == nullptr ? times(given) : 0);
    LinearAttention shape = given;
    if (given.divisors == nullptr) {
      shape.divisors = divisors.data();
    }
    if (shape.divides) {
      divide(shape, query, key, wants);
    }
    const Sums sums(states(shape));
    float* const own = own_sum(shape, state);
    sum_chunks(shape, key, value, sums.data(), {own, own}, false);
    if (!wants) {
      return;
    }
    const std::int64_t parts = (shape.value_dim + kTileSide - 1) / kTileSide;
    Launcher::blocks(chunk_count(shape) * parts, kTileThreads, ChunkOutput::shared_floats(shape),
                     ChunkOutput{shape, query, key, value, heads(shape, out, shape.value_dim),
                                 sums.data(), parts});
  }

  static void backward(const LinearAttention& shape, In q, In k, In v, In d_out, Out d_q, Out d_k,
                       Out d_v, double* d_theta, const OuterSums& outer) {
    const HeadsIn query = heads(shape, q, shape.key_dim, shape.strides.q);
    const HeadsIn key = heads(shape, k, shape.key_dim, shape.strides.k);
    const HeadsIn value = heads(shape, v, shape.value_dim, shape.strides.v);
    const HeadsIn gradient = heads(shape, d_out, shape.value_dim);
    const Sums before(states(shape)), behind(states(shape));
    sum_chunks(shape, key, value, before.data(), {own_sum(shape, outer.before)}, false);
    sum_chunks(shape, query, gradient, behind.data(), {own_sum(shape, outer.behind)}, true);
    const Sums slopes(shape.divides ? times(shape) : 0);
    const Sums keys(shape.divides ? key_sums(shape) : 0),
        queries(shape.divides ? key_sums(shape) : 0);
    if (shape.divides) {
      Launcher::rows((shape.last - shape.first) * shape.time,
                     DivisorSlope{shape, heads(shape, shape.output, shape.value_dim), gradient,
                                  slopes.data()});
      sum_features(shape, key, nullptr, keys.data(), {}, false);
      sum_features(shape, query, slopes.data(), queries.data(), {}, true);
    }
    const std::int64_t pairs = shape.lrpe.rotation == nullptr ? 0 : shape.key_dim / 2;
    const typename Launcher::template Workspace<double> theta(2 * chunk_count(shape) * pairs);
    Launcher::blocks(
        chunk_count(shape), kTileThreads, ChunkGradients::shared_floats(shape),
        ChunkGradients{shape, query, key, value, gradient,
                       heads(shape, d_q, shape.key_dim, shape.gradient_strides.q),
                       heads(shape, d_k, shape.key_dim, shape.gradient_strides.k),
                       heads(shape, d_v, shape.value_dim, shape.gradient_strides.v), before.data(),
                       behind.data(), DivisorGradients{slopes.data(), keys.data(), queries.data()},
                       pairs > 0 ? theta.data() : nullptr});
    Launcher::elements(
        (shape.last - shape.first) * pairs,
        ThetaSum{theta.data(), d_theta + shape.first * pairs, 2 * chunks_of(shape), pairs});
  }

  // The shared memory of a block, of either pass.
  static constexpr std::int64_t most_shared_floats(const LinearAttention& shape) {
    std::int64_t most = 0;
    for (const std::int64_t floats :
         {ChunkSums::shared_floats(shape), ChunkOutput::shared_floats(shape),
          ChunkGradients::shared_floats(shape),
          shape.divides ? ChunkDivisors::shared_floats(shape) : 0}) {
      most = floats > most ? floats : most;
    }
    return most;
  }

 private:
  static std::int64_t chunk_count(const LinearAttention& shape) {
    return (shape.last - shape.first) * chunks_of(shape);
  }
  static std::int64_t states(const LinearAttention& shape) {
    return chunk_count(shape) * shape.key_dim * shape.value_dim;
  }
  static std::int64_t key_sums(const LinearAttention& shape) {
    return chunk_count(shape) * shape.key_dim;
  }
  // Of all heads of the batch rows that are touched.
  static std::int64_t times(const LinearAttention& shape) {
    return (shape.last + shape.heads - 1) / shape.heads * shape.time * shape.heads;
  }

  // That of the first head; null stays so.
  template <typename T>
  static T* own_sum(const LinearAttention& shape, T* sums) {
    return sums == nullptr ? nullptr : sums + shape.first * shape.key_dim * shape.value_dim;
  }

  struct Ends {
    const float* start = nullptr;
    float* end = nullptr;
  };

  // Queries or keys with values or their gradients.
  static void sum_chunks(const LinearAttention& shape, const HeadsIn& a, const HeadsIn& b,
                         float* sums, const Ends& ends, bool backwards) {
    Launcher::blocks(chunk_count(shape), kTileThreads, ChunkSums::shared_floats(shape),
                     ChunkSums{shape, a, b, sums, backwards});
    sums_before(shape, sums, ends, a.dim * b.dim, backwards);
  }

  // Queries or keys alone.
  static void sum_features(const LinearAttention& shape, const HeadsIn& x, const float* weights,
                           float* sums, const Ends& ends, bool backwards) {
    Launcher::elements(key_sums(shape), FeatureSums{shape, x, weights, sums});
    sums_before(shape, sums, ends, x.dim, backwards);
  }

  static void sums_before(const LinearAttention& shape, float* sums, const Ends& ends,
                          std::int64_t elements, bool backwards) {
    Launcher::elements((shape.last - shape.first) * elements,
                       SumsBefore{shape, sums, ends.start, ends.end, elements, backwards});
  }

  // Brings the sum of the keys up to date and, where they are wanted, makes the divisors.
  static void divide(const LinearAttention& shape, const HeadsIn& query, const HeadsIn& key,
                     bool wants) {
    const Sums before(key_sums(shape));
    float* const own =
        shape.key_sums == nullptr ? nullptr : shape.key_sums + shape.first * shape.key_dim;
    sum_features(shape, key, nullptr, before.data(), {own, own}, false);
    if (wants) {
      Launcher::blocks(chunk_count(shape), kTileThreads, ChunkDivisors::shared_floats(shape),
                       ChunkDivisors{shape, query, key, before.data()});
    }
  }
};

}  // namespace transnormer::ops::cuda
