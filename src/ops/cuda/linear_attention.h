// Chunked causal linear attention; the formulas stand in
// ops/attention/linear_attention_tensor.h. All chunks at once: their own sums of k v^T, then the
// sums before each chunk, then the outputs.
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

// sums[chunk] = a^T b over the chunk's rows, [a_dim, b_dim], a being queries or keys.
struct ChunkSums {
  LinearAttention shape;
  HeadsIn a;
  HeadsIn b;
  float* sums;

  static constexpr std::int64_t shared_floats(std::int64_t a_dim, std::int64_t b_dim) {
    return tile_floats(kChunk, a_dim) + tile_floats(kChunk, b_dim);
  }

  template <typename Block>
  TRANSNORMER_DEVICE void operator()(const Block& block, std::int64_t number, float* shared) const {
    const Span chunk = chunk_of(shape, number);
    Tiles tiles(shared);
    const Tile left = tiles.take(kChunk, a.dim);
    const Tile right = tiles.take(kChunk, b.dim);
    read_encoded(block, shape.feature, shape.lrpe, a, chunk, 1, left);
    read_rows(block, b, chunk, right);
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
  float* sums;
  const float* start;  // the sum before all of them; null: zero
  float* end;          // where that of all goes; may be null
  std::int64_t chunks;
  std::int64_t elements;  // of a sum
  bool backwards;

  TRANSNORMER_DEVICE void operator()(std::int64_t i) const {
    const std::int64_t head = quotient(i, elements);
    const std::int64_t element = i - head * elements;
    float sum = start == nullptr ? 0.F : start[i];
    for (std::int64_t c = 0; c < chunks; ++c) {
      const std::int64_t chunk = head * chunks + (backwards ? chunks - 1 - c : c);
      float& place = sums[chunk * elements + element];
      const float own = place;
      place = sum;
      sum += own;
    }
    if (end != nullptr) {
      end[i] = sum;
    }
  }
};

TRANSNORMER_DEVICE inline float if_lower(int i, int j, float x) {
  return j <= i ? x : 0.F;
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
           tile_floats(kChunk, kChunk) + tile_floats(s.key_dim, kTileSide);
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
    read_encoded(block, shape.feature, shape.lrpe, q, chunk, 1, query);
    read_encoded(block, shape.feature, shape.lrpe, k, chunk, 1, key);
    const float* state = before + number / parts * shape.key_dim * shape.value_dim + first;
    for_elements(block, key_dim, columns,
                 [&](int i, int j) { sum.at(i, j) = state[i * shape.value_dim + j]; });
    product(
        block, rows, rows, [&](int i, int j, float x) { scores.at(i, j) = if_lower(i, j, x); },
        Term{key_dim, [&](int i, int d) { return query.at(i, d); },
             [&](int d, int j) { return key.at(j, d); }});
    for_elements(block, rows, columns, [&](int i, int j) {
      values.at(i, j) = v.at(chunk.head, chunk.time + i, first + j);
    });
    product(
        block, rows, columns,
        [&](int i, int j, float x) { out.set(chunk.head, chunk.time + i, first + j, x); },
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
  double* theta_parts;  // [chunks, 2, key_dim / 2]; null where there is no LRPE

  static constexpr std::int64_t shared_floats(const LinearAttention& s) {
    return 3 * tile_floats(kChunk, s.key_dim) + 2 * tile_floats(kChunk, s.value_dim) +
           tile_floats(kChunk, kChunk) + tile_floats(s.key_dim, s.value_dim);
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
    const Tile scores = tiles.take(kChunk, kChunk);  // tril(dO V^T), then tril(Q K^T)
    const Tile sum = tiles.take(key_dim, value_dim);
    const Tile result = tiles.take(kChunk, key_dim);
    read_encoded(block, shape.feature, shape.lrpe, q, chunk, 1, query);
    read_encoded(block, shape.feature, shape.lrpe, k, chunk, 1, key);
    read_rows(block, v, chunk, values);
    read_rows(block, d_out, chunk, gradient);
    const auto read_sum = [&](const float* sums) {
      const float* own = sums + number * shape.key_dim * shape.value_dim;
      for_elements(block, key_dim, value_dim,
                   [&](int i, int j) { sum.at(i, j) = own[i * value_dim + j]; });
    };
    const auto give_score = [&](int i, int j, float x) { scores.at(i, j) = if_lower(i, j, x); };

    product(block, rows, rows, give_score,
            Term{value_dim, [&](int i, int d) { return gradient.at(i, d); },
                 [&](int d, int j) { return values.at(j, d); }});
    read_sum(before);
    product(
        block, rows, key_dim, [&](int i, int j, float x) { result.at(i, j) = x; },
        Term{value_dim, [&](int i, int d) { return gradient.at(i, d); },
             [&](int d, int j) { return sum.at(j, d); }},
        Term{rows, [&](int i, int t) { return scores.at(i, t); },
             [&](int t, int j) { return key.at(t, j); }});
    write_decoded(block, shape.feature, shape.lrpe, q, chunk, 1, result, d_q,
                  theta_part(number, 0));
    read_sum(behind);
    product(
        block, rows, key_dim, [&](int i, int j, float x) { result.at(i, j) = x; },
        Term{value_dim, [&](int i, int d) { return values.at(i, d); },
             [&](int d, int j) { return sum.at(j, d); }},
        Term{rows, [&](int i, int t) { return scores.at(t, i); },
             [&](int t, int j) { return query.at(t, j); }});
    write_decoded(block, shape.feature, shape.lrpe, k, chunk, 1, result, d_k,
                  theta_part(number, 1));
    product(block, rows, rows, give_score,
            Term{key_dim, [&](int i, int d) { return query.at(i, d); },
                 [&](int d, int j) { return key.at(j, d); }});
    product(
        block, rows, value_dim,
        [&](int i, int j, float x) { d_v.set(chunk.head, chunk.time + i, j, x); },
        Term{key_dim, [&](int i, int d) { return key.at(i, d); },
             [&](int d, int j) { return sum.at(d, j); }},
        Term{rows, [&](int i, int t) { return scores.at(t, i); },
             [&](int t, int j) { return gradient.at(t, j); }});
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

  static void forward(const LinearAttention& shape, In q, In k, In v, Out out, float* state) {
    const HeadsIn key = heads(shape, k, shape.key_dim, shape.strides.k);
    const HeadsIn value = heads(shape, v, shape.value_dim, shape.strides.v);
    const Sums sums(states(shape));
    float* const own = own_sum(shape, state);
    sum_chunks(shape, key, value, sums.data(), {own, own}, false);
    if (out.data == nullptr) {
      return;
    }
    const std::int64_t parts = (shape.value_dim + kTileSide - 1) / kTileSide;
    Launcher::blocks(chunk_count(shape) * parts, kTileThreads, ChunkOutput::shared_floats(shape),
                     ChunkOutput{shape, heads(shape, q, shape.key_dim, shape.strides.q), key, value,
                                 heads(shape, out, shape.value_dim), sums.data(), parts});
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
    const std::int64_t pairs = shape.lrpe.rotation == nullptr ? 0 : shape.key_dim / 2;
    const typename Launcher::template Workspace<double> theta(2 * chunk_count(shape) * pairs);
    Launcher::blocks(
        chunk_count(shape), kTileThreads, ChunkGradients::shared_floats(shape),
        ChunkGradients{shape, query, key, value, gradient,
                       heads(shape, d_q, shape.key_dim, shape.gradient_strides.q),
                       heads(shape, d_k, shape.key_dim, shape.gradient_strides.k),
                       heads(shape, d_v, shape.value_dim, shape.gradient_strides.v), before.data(),
                       behind.data(), pairs > 0 ? theta.data() : nullptr});
    Launcher::elements(
        (shape.last - shape.first) * pairs,
        ThetaSum{theta.data(), d_theta + shape.first * pairs, 2 * chunks_of(shape), pairs});
  }

  // The shared memory of a block, of either pass.
  static constexpr std::int64_t most_shared_floats(const LinearAttention& shape) {
    const std::int64_t out = ChunkOutput::shared_floats(shape);
    const std::int64_t gradients = ChunkGradients::shared_floats(shape);
    return out > gradients ? out : gradients;
  }

 private:
  static std::int64_t chunk_count(const LinearAttention& shape) {
    return (shape.last - shape.first) * chunks_of(shape);
  }
  static std::int64_t states(const LinearAttention& shape) {
    return chunk_count(shape) * shape.key_dim * shape.value_dim;
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
    Launcher::blocks(chunk_count(shape), kTileThreads, ChunkSums::shared_floats(a.dim, b.dim),
                     ChunkSums{shape, a, b, sums});
    const std::int64_t elements = a.dim * b.dim;
    Launcher::elements(
        (shape.last - shape.first) * elements,
        SumsBefore{sums, ends.start, ends.end, chunks_of(shape), elements, backwards});
  }
};

}  // namespace transnormer::ops::cuda
