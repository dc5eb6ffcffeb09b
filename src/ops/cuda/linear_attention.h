// Chunked causal linear attention; the formulas stand in ops/causal_linear_attention_tensor.h. All
// chunks at once: their own sums of k v^T, then the sums before each chunk, then the outputs.
#pragma once

#include "ops/cuda/heads.h"
#include "ops/cuda/tiles.h"

namespace transnormer::ops::cuda {

using kernels::kChunk;
using kernels::LinearAttention;

// Where a chunk of a head lies.
struct Chunk {
  std::int64_t number;  // of all heads' chunks, also of its state
  std::int64_t head;    // of batch * heads
  std::int64_t time;
  int rows;
};

TRANSNORMER_BOTH constexpr std::int64_t chunks_of(const LinearAttention& shape) {
  return (shape.time + kChunk - 1) / kChunk;
}

TRANSNORMER_DEVICE inline Chunk chunk_of(const LinearAttention& shape, std::int64_t number) {
  const std::int64_t chunks = chunks_of(shape);
  const std::int64_t time = number % chunks * kChunk;
  const std::int64_t rest = shape.time - time;
  return {number, shape.first + number / chunks, time,
          static_cast<int>(rest < kChunk ? rest : kChunk)};
}

// sums[chunk] = a^T b over the chunk's rows, [a_dim, b_dim].
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
    const Chunk chunk = chunk_of(shape, number);
    Tiles tiles(shared);
    const Tile left = tiles.take(kChunk, a.dim);
    const Tile right = tiles.take(kChunk, b.dim);
    read_rows(block, a, chunk.head, chunk.time, chunk.rows, 1, left);
    read_rows(block, b, chunk.head, chunk.time, chunk.rows, 1, right);
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
  float* state;  // where the sum starts and what it ends with; may be null
  std::int64_t chunks;
  std::int64_t elements;  // of a sum
  bool backwards;

  TRANSNORMER_DEVICE void operator()(std::int64_t i) const {
    const std::int64_t head = quotient(i, elements);
    const std::int64_t element = i - head * elements;
    float sum = state == nullptr ? 0.F : state[i];
    for (std::int64_t c = 0; c < chunks; ++c) {
      const std::int64_t chunk = head * chunks + (backwards ? chunks - 1 - c : c);
      float& place = sums[chunk * elements + element];
      const float own = place;
      place = sum;
      sum += own;
    }
    if (state != nullptr) {
      state[i] = sum;
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
    return 2 * tile_floats(kChunk, s.key_dim) + 2 * tile_floats(kChunk, kChunk) +
           tile_floats(s.key_dim, kTileSide);
  }

  template <typename Block>
  TRANSNORMER_DEVICE void operator()(const Block& block, std::int64_t number, float* shared) const {
    const Chunk chunk = chunk_of(shape, number / parts);
    const int rows = chunk.rows;
    const int key_dim = static_cast<int>(shape.key_dim);
    const int first = static_cast<int>(number % parts) * kTileSide;
    const int rest = static_cast<int>(shape.value_dim) - first;
    const int columns = rest < kTileSide ? rest : kTileSide;
    Tiles tiles(shared);
    const Tile query = tiles.take(kChunk, key_dim);
    const Tile key = tiles.take(kChunk, key_dim);
    const Tile scores = tiles.take(kChunk, kChunk);
    const Tile values = tiles.take(kChunk, kTileSide);
    const Tile sum = tiles.take(key_dim, kTileSide);
    read_rows(block, q, chunk.head, chunk.time, rows, 1, query);
    read_rows(block, k, chunk.head, chunk.time, rows, 1, key);
    for_elements(block, rows, columns, [&](int i, int j) {
      values.at(i, j) = v.at(chunk.head, chunk.time + i, first + j);
    });
    const float* state = before + chunk.number * shape.key_dim * shape.value_dim + first;
    for_elements(block, key_dim, columns,
                 [&](int i, int j) { sum.at(i, j) = state[i * shape.value_dim + j]; });
    product(
        block, rows, rows, [&](int i, int j, float x) { scores.at(i, j) = if_lower(i, j, x); },
        Term{key_dim, [&](int i, int d) { return query.at(i, d); },
             [&](int d, int j) { return key.at(j, d); }});
    product(
        block, rows, columns,
        [&](int i, int j, float x) { out.set(chunk.head, chunk.time + i, first + j, x); },
        Term{key_dim, [&](int i, int d) { return query.at(i, d); },
             [&](int d, int j) { return sum.at(d, j); }},
        Term{rows, [&](int i, int t) { return scores.at(i, t); },
             [&](int t, int j) { return values.at(t, j); }});
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

  static constexpr std::int64_t shared_floats(const LinearAttention& s) {
    return 2 * tile_floats(kChunk, s.key_dim) + 2 * tile_floats(kChunk, s.value_dim) +
           tile_floats(kChunk, kChunk) + tile_floats(s.key_dim, s.value_dim);
  }

  template <typename Block>
  TRANSNORMER_DEVICE void operator()(const Block& block, std::int64_t number, float* shared) const {
    const Chunk chunk = chunk_of(shape, number);
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
    read_rows(block, q, chunk.head, chunk.time, rows, 1, query);
    read_rows(block, k, chunk.head, chunk.time, rows, 1, key);
    read_rows(block, v, chunk.head, chunk.time, rows, 1, values);
    read_rows(block, d_out, chunk.head, chunk.time, rows, 1, gradient);
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
        block, rows, key_dim,
        [&](int i, int j, float x) { d_q.set(chunk.head, chunk.time + i, j, x); },
        Term{value_dim, [&](int i, int d) { return gradient.at(i, d); },
             [&](int d, int j) { return sum.at(j, d); }},
        Term{rows, [&](int i, int t) { return scores.at(i, t); },
             [&](int t, int j) { return key.at(t, j); }});
    read_sum(behind);
    product(
        block, rows, key_dim,
        [&](int i, int j, float x) { d_k.set(chunk.head, chunk.time + i, j, x); },
        Term{value_dim, [&](int i, int d) { return values.at(i, d); },
             [&](int d, int j) { return sum.at(j, d); }},
        Term{rows, [&](int i, int t) { return scores.at(t, i); },
             [&](int t, int j) { return query.at(t, j); }});
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
};

// Of dense tensors that are encoded already.
template <typename Launcher>
struct LinearAttentions {
  using Sums = typename Launcher::template Workspace<float>;

  static void forward(const LinearAttention& shape, In q, In k, In v, Out out, float* state) {
    const HeadsIn key = heads(shape, k, shape.key_dim), value = heads(shape, v, shape.value_dim);
    const Sums sums(states(shape));
    if (state != nullptr) {
      state += shape.first * shape.key_dim * shape.value_dim;
    }
    sum_chunks(shape, key, value, sums.data(), state, false);
    const std::int64_t parts = (shape.value_dim + kTileSide - 1) / kTileSide;
    Launcher::blocks(chunk_count(shape) * parts, kTileThreads, ChunkOutput::shared_floats(shape),
                     ChunkOutput{shape, heads(shape, q, shape.key_dim), key, value,
                                 heads(shape, out, shape.value_dim), sums.data(), parts});
  }

  static void backward(const LinearAttention& shape, In q, In k, In v, In d_out, Out d_q, Out d_k,
                       Out d_v, double* /*d_theta*/) {
    const HeadsIn query = heads(shape, q, shape.key_dim), key = heads(shape, k, shape.key_dim);
    const HeadsIn value = heads(shape, v, shape.value_dim);
    const HeadsIn gradient = heads(shape, d_out, shape.value_dim);
    const Sums before(states(shape)), behind(states(shape));
    sum_chunks(shape, key, value, before.data(), nullptr, false);
    sum_chunks(shape, query, gradient, behind.data(), nullptr, true);
    Launcher::blocks(
        chunk_count(shape), kTileThreads, ChunkGradients::shared_floats(shape),
        ChunkGradients{shape, query, key, value, gradient, heads(shape, d_q, shape.key_dim),
                       heads(shape, d_k, shape.key_dim), heads(shape, d_v, shape.value_dim),
                       before.data(), behind.data()});
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

  static void sum_chunks(const LinearAttention& shape, const HeadsIn& a, const HeadsIn& b,
                         float* sums, float* state, bool backwards) {
    Launcher::blocks(chunk_count(shape), kTileThreads, ChunkSums::shared_floats(a.dim, b.dim),
                     ChunkSums{shape, a, b, sums});
    const std::int64_t elements = a.dim * b.dim;
    Launcher::elements((shape.last - shape.first) * elements,
                       SumsBefore{sums, state, chunks_of(shape), elements, backwards});
  }
};

}  // namespace transnormer::ops::cuda
