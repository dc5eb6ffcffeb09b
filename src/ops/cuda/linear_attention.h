// Chunked causal linear attention; the formulas stand in
// ops/attention/linear_attention_tensor.h. All chunks at once: their own sums of k v^T, then the
// sums before each chunk, then the outputs. With decay, tiles fade in place between the products;
// a division has kernels of its own for the divisors and for what they add to the gradients.
#pragma once

#include "ops/cuda/division.h"
#include "ops/cuda/linear_chunks.h"
#include "ops/cuda/logarithm_attention.h"

namespace transnormer::ops::cuda {

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
  using Logarithms = LogarithmAttentions<Launcher>;

  static void forward(const LinearAttention& given, In q, In k, In v, Out out, float* state) {
    const HeadsIn key = heads(given, k, given.key_dim, given.strides.k);
    const HeadsIn value = heads(given, v, given.value_dim, given.strides.v);
    const HeadsIn query = heads(given, q, given.key_dim, given.strides.q);
    if (given.exponential) {
      return Logarithms::forward(given, query, key, value, heads(given, out, given.value_dim));
    }
    const bool wants = out.data != nullptr;
    const Sums divisors(given.divides && wants && given.divisors == nullptr ? times_of(given) : 0);
    LinearAttention shape = given;
    if (given.divisors == nullptr) {
      shape.divisors = divisors.data();
    }
    if (shape.divides) {
      divide(shape, query, key, wants);
    }
    const Sums sums(states_of(shape));
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
    const HeadsOut to_query = heads(shape, d_q, shape.key_dim, shape.gradient_strides.q);
    const HeadsOut to_key = heads(shape, d_k, shape.key_dim, shape.gradient_strides.k);
    const HeadsOut to_value = heads(shape, d_v, shape.value_dim, shape.gradient_strides.v);
    if (shape.exponential) {
      return Logarithms::backward(shape, query, key, value, gradient, to_query, to_key, to_value);
    }
    const Sums before(states_of(shape)), behind(states_of(shape));
    sum_chunks(shape, key, value, before.data(), {own_sum(shape, outer.before)}, false);
    sum_chunks(shape, query, gradient, behind.data(), {own_sum(shape, outer.behind)}, true);
    const Sums slopes(shape.divides ? times_of(shape) : 0);
    const Sums keys(shape.divides ? features_of(shape) : 0),
        queries(shape.divides ? features_of(shape) : 0);
    if (shape.divides) {
      Launcher::rows((shape.last - shape.first) * shape.time,
                     DivisorSlope{shape, heads(shape, shape.output, shape.value_dim), gradient,
                                  slopes.data()});
      sum_features(shape, key, nullptr, keys.data(), {}, false);
      sum_features(shape, query, slopes.data(), queries.data(), {}, true);
    }
    const std::int64_t pairs = shape.lrpe.rotation == nullptr ? 0 : shape.key_dim / 2;
    const typename Launcher::template Workspace<double> theta(2 * chunk_count(shape) * pairs);
    Launcher::blocks(chunk_count(shape), kTileThreads, ChunkGradients::shared_floats(shape),
                     ChunkGradients{shape, query, key, value, gradient, to_query, to_key, to_value,
                                    before.data(), behind.data(),
                                    DivisorGradients{slopes.data(), keys.data(), queries.data()},
                                    pairs > 0 ? theta.data() : nullptr});
    Launcher::elements(
        (shape.last - shape.first) * pairs,
        ThetaSum{theta.data(), d_theta + shape.first * pairs, 2 * chunks_of(shape), pairs});
  }

  // The shared memory of a block, of either pass.
  static constexpr std::int64_t most_shared_floats(const LinearAttention& shape) {
    if (shape.exponential) {
      return Logarithms::most_shared_floats(shape);
    }
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
    Launcher::elements(features_of(shape), FeatureSums{shape, x, weights, sums});
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
    const Sums before(features_of(shape));
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
