// Linear attention of logarithms of features: sum_s (e^q . e^k_s) v_s of all tokens s up to each
// one, divided by sum_s e^q . e^k_s or not. In the chunks of ops/cuda/linear_attention.h, whose
// places do not depend on what the keys are, so that nothing waits for the device. Between chunks a
// feature of the keys is in units of e^r, with r the largest up to a chunk's end; inside a chunk
// each exponential is that of the sum of both logarithms. A row that is divided is in units of its
// largest weight. So no exponential is above 1 where it is divided, and none that counts is beyond
// single precision where it is not, unless the weight itself is.
#pragma once

#include "ops/cuda/division.h"
#include "ops/cuda/linear_chunks.h"

namespace transnormer::ops::cuda {

// Of no keys yet; finite, so that no difference is not a number.
inline constexpr float kNoKeys = -1e30F;

// e^x, of an x that is too large only where what it is a factor of does not count.
TRANSNORMER_DEVICE inline float bounded_exp(float x) {
  constexpr float kMost = 88;
  return Scalars::exp(x < kMost ? x : kMost);
}

// The units of sums: the maxima of the keys up to each chunk's end, [heads, chunks, key_dim].
struct Units {
  const float* maxima;
  std::int64_t key_dim;
  std::int64_t chunks;

  [[nodiscard]] TRANSNORMER_DEVICE float behind(std::int64_t number, std::int64_t i) const {
    return maxima[number * key_dim + i];
  }
  [[nodiscard]] TRANSNORMER_DEVICE float before(std::int64_t number, std::int64_t i) const {
    return number % chunks == 0 ? kNoKeys : maxima[(number - 1) * key_dim + i];
  }
};

struct ChunkMaxima {
  LinearAttention shape;
  HeadsIn k;
  float* maxima;  // of each chunk by itself

  TRANSNORMER_DEVICE void operator()(std::int64_t i) const {
    const std::int64_t number = quotient(i, k.dim);
    const std::int64_t column = i - number * k.dim;
    const Span chunk = chunk_of(shape, number);
    float most = kNoKeys;
    for (int row = 0; row < chunk.rows; ++row) {
      const float x = k.at(chunk.head, chunk.time + row, column);
      most = x > most ? x : most;
    }
    maxima[i] = most;
  }
};

// .. become those up to each chunk's end.
struct MaximaSoFar {
  LinearAttention shape;
  float* maxima;

  TRANSNORMER_DEVICE void operator()(std::int64_t i) const {
    const std::int64_t head = quotient(i, shape.key_dim);
    float most = kNoKeys;
    for (std::int64_t chunk = 0; chunk < chunks_of(shape); ++chunk) {
      float& place =
          maxima[(head * chunks_of(shape) + chunk) * shape.key_dim + i - head * shape.key_dim];
      most = place > most ? place : most;
      place = most;
    }
  }
};

// The unit of a row's weights as a logarithm; 0 where it is not divided.
struct RowUnits {
  float* logarithms;  // [batch, time, heads], or null

  [[nodiscard]] TRANSNORMER_DEVICE float at(const LinearAttention& shape, const Span& chunk,
                                            int row) const {
    return logarithms == nullptr ? 0.F
                                 : logarithms[divisor_place(shape, chunk.head, chunk.time + row)];
  }
};

// The largest weight of each row and the sum of all, in units of it.
struct RowWeights {
  LinearAttention shape;
  HeadsIn q;
  HeadsIn k;
  Units units;
  const float* before;  // the chunk, of the keys' features: [chunks, key_dim]
  RowUnits of_rows;
  float* divisors;  // null: they are known

  static constexpr std::int64_t shared_floats(const LinearAttention& s) {
    return 2 * tile_floats(kChunk, s.key_dim);
  }

  template <typename Block>
  TRANSNORMER_DEVICE void operator()(const Block& block, std::int64_t number, float* shared) const {
    const Span chunk = chunk_of(shape, number);
    Tiles tiles(shared);
    const Tile maxima = tiles.take(kChunk, shape.key_dim);  // up to each row
    const Tile sums = tiles.take(kChunk, shape.key_dim);    // in units of them
    block.each([&](int thread) {
      for (int column = thread; column < shape.key_dim; column += block.size) {
        float most = units.before(number, column);
        float sum = before[number * shape.key_dim + column];
        for (int row = 0; row < chunk.rows; ++row) {
          const float x = k.at(chunk.head, chunk.time + row, column);
          const float own = x > most ? x : most;
          sum = sum * Scalars::exp(most - own) + Scalars::exp(x - own);
          most = own;
          maxima.at(row, column) = most;
          sums.at(row, column) = sum;
        }
      }
    });
    block.rows(chunk.rows, [&](const auto& group, int row) {
      const std::int64_t time = chunk.time + row;
      const auto largest = [&](std::int64_t i) {
        return q.at(chunk.head, time, i) + maxima.at(row, static_cast<int>(i));
      };
      const float unit = group.reduce(
          [&](int thread) {
            float most = kNoKeys;
            for (std::int64_t i = thread; i < shape.key_dim; i += group.size) {
              most = largest(i) > most ? largest(i) : most;
            }
            return most;
          },
          [](float a, float b) { return a > b ? a : b; });
      const float sum = sum_over(group, shape.key_dim, [&](std::int64_t i) {
        return Scalars::exp(largest(i) - unit) * sums.at(row, static_cast<int>(i));
      });
      group.each([&](int thread) {
        if (thread == 0) {
          const std::int64_t place = divisor_place(shape, chunk.head, time);
          of_rows.logarithms[place] = unit;
          if (divisors != nullptr) {
            divisors[place] = sum;
          }
        }
      });
    });
  }
};

// A chunk's own part of the sums behind it, of keys and values, in the units behind it; or,
// `backwards`, of those before it, of queries and gradients, each in the units of its row, times
// those before it.
struct LogarithmSums {
  LinearAttention shape;
  HeadsIn a;
  HeadsIn b;
  Units units;
  RowUnits of_rows;
  const float* slopes;  // of the divisors
  float* sums;          // [chunks, key_dim, value_dim]
  float* features;      // [chunks, key_dim]: of keys, of queries times slopes; null: not wanted
  bool backwards;

  static constexpr std::int64_t shared_floats(const LinearAttention& s) {
    return tile_floats(kChunk, s.key_dim) + tile_floats(kChunk, s.value_dim);
  }

  template <typename Block>
  TRANSNORMER_DEVICE void operator()(const Block& block, std::int64_t number, float* shared) const {
    const Span chunk = chunk_of(shape, number);
    Tiles tiles(shared);
    const Tile left = tiles.take(kChunk, a.dim);
    const Tile right = tiles.take(kChunk, b.dim);
    for_elements(block, chunk.rows, static_cast<int>(a.dim), [&](int i, int j) {
      const float x = a.at(chunk.head, chunk.time + i, j);
      left.at(i, j) =
          bounded_exp(backwards ? x - of_rows.at(shape, chunk, i) + units.before(number, j)
                                : x - units.behind(number, j));
    });
    read_rows(block, b, chunk, right);
    if (backwards && shape.divides) {
      divide_rows(block, shape, chunk, b.dim, right);
    }
    product(
        block, static_cast<int>(a.dim), static_cast<int>(b.dim),
        [&](int i, int j, float x) { sums[(number * a.dim + i) * b.dim + j] = x; },
        Term{chunk.rows, [&](int i, int k) { return left.at(k, i); },
             [&](int k, int j) { return right.at(k, j); }});
    if (features == nullptr) {
      return;
    }
    block.each([&](int thread) {
      for (int column = thread; column < a.dim; column += block.size) {
        float sum = 0;
        for (int row = 0; row < chunk.rows; ++row) {
          const std::int64_t place = divisor_place(shape, chunk.head, chunk.time + row);
          sum += left.at(row, column) * (backwards ? slopes[place] : 1.F);
        }
        features[number * a.dim + column] = sum;
      }
    });
  }
};

// .. become the sums before each chunk, in the units there, or those behind it.
struct LogarithmSumsAround {
  LinearAttention shape;
  Units units;
  float* sums;
  std::int64_t width;  // of a feature
  bool backwards;

  TRANSNORMER_DEVICE void operator()(std::int64_t i) const {
    const std::int64_t elements = shape.key_dim * width;
    const std::int64_t chunks = chunks_of(shape);
    const std::int64_t head = quotient(i, elements);
    const std::int64_t element = i - head * elements;
    const std::int64_t feature = quotient(element, width);
    float sum = 0;
    for (std::int64_t c = 0; c < chunks; ++c) {
      const std::int64_t number = head * chunks + (backwards ? chunks - 1 - c : c);
      float& place = sums[number * elements + element];
      const float own = place;
      place = sum;
      sum = sum * Scalars::exp(units.before(number, feature) - units.behind(number, feature)) + own;
    }
  }
};

// Calls give(i, j, sum of term(i, j, k) over k below `depth`) for all i below `m` and j below `n`.
template <typename Block, typename Give, typename Term>
TRANSNORMER_DEVICE void sum_terms(const Block& block, int m, int n, int depth, Give give,
                                  Term term) {
  block.each([&](int thread) {
    for (int top = thread / 16; top < m; top += 32) {
      for (int left = thread % 16; left < n; left += 32) {
        float sums[2][2] = {};
        const int rows[2] = {top, top + 16 < m ? top + 16 : m - 1};
        const int columns[2] = {left, left + 16 < n ? left + 16 : n - 1};
        for (int k = 0; k < depth; ++k) {
          TRANSNORMER_UNROLL
          for (int r = 0; r < 2; ++r) {
            TRANSNORMER_UNROLL
            for (int c = 0; c < 2; ++c) {
              sums[r][c] += term(rows[r], columns[c], k);
            }
          }
        }
        TRANSNORMER_UNROLL
        for (int r = 0; r < 2; ++r) {
          TRANSNORMER_UNROLL
          for (int c = 0; c < 2; ++c) {
            if (top + 16 * r < m && left + 16 * c < n) {
              give(top + 16 * r, left + 16 * c, sums[r][c]);
            }
          }
        }
      }
    }
  });
}

// The weights of a chunk's rows on its own tokens; of logarithms of queries in units of their rows.
template <typename Block>
TRANSNORMER_DEVICE void weights_inside(const Block& block, int rows, int key_dim, const Tile& query,
                                       const Tile& key, const Tile& to) {
  sum_terms(
      block, rows, rows, key_dim, [&](int i, int j, float x) { to.at(i, j) = j <= i ? x : 0.F; },
      [&](int i, int j, int d) { return bounded_exp(query.at(i, d) + key.at(j, d)); });
}

template <typename Block>
TRANSNORMER_DEVICE void read_queries(const Block& block, const LinearAttention& shape,
                                     const HeadsIn& q, const Span& chunk, const RowUnits& of_rows,
                                     const Tile& to) {
  for_elements(block, chunk.rows, static_cast<int>(q.dim), [&](int i, int j) {
    to.at(i, j) = q.at(chunk.head, chunk.time + i, j) - of_rows.at(shape, chunk, i);
  });
}

// For up to kTileSide columns of the values.
struct LogarithmOutput {
  LinearAttention shape;
  HeadsIn q;
  HeadsIn k;
  HeadsIn v;
  HeadsOut out;
  Units units;
  RowUnits of_rows;
  const float* before;
  std::int64_t parts;  // of a chunk's columns

  static constexpr std::int64_t shared_floats(const LinearAttention& s) {
    return 2 * tile_floats(kChunk, s.key_dim) + tile_floats(kChunk, kTileSide) +
           tile_floats(kChunk, kChunk) + tile_floats(s.key_dim, kTileSide);
  }

  template <typename Block>
  TRANSNORMER_DEVICE void operator()(const Block& block, std::int64_t part, float* shared) const {
    const std::int64_t number = part / parts;
    const Span chunk = chunk_of(shape, number);
    const int key_dim = static_cast<int>(shape.key_dim);
    const int first = static_cast<int>(part % parts) * kTileSide;
    const int rest = static_cast<int>(shape.value_dim) - first;
    const int columns = rest < kTileSide ? rest : kTileSide;
    Tiles tiles(shared);
    const Tile query = tiles.take(kChunk, key_dim);
    const Tile key = tiles.take(kChunk, key_dim);
    const Tile values = tiles.take(kChunk, kTileSide);
    const Tile weights = tiles.take(kChunk, kChunk);
    const Tile sum = tiles.take(key_dim, kTileSide);
    read_queries(block, shape, q, chunk, of_rows, query);
    read_rows(block, k, chunk, key);
    for_elements(block, chunk.rows, columns, [&](int i, int j) {
      values.at(i, j) = v.at(chunk.head, chunk.time + i, first + j);
    });
    const float* state = before + number * shape.key_dim * shape.value_dim + first;
    for_elements(block, key_dim, columns,
                 [&](int i, int j) { sum.at(i, j) = state[i * shape.value_dim + j]; });
    weights_inside(block, chunk.rows, key_dim, query, key, weights);
    for_elements(block, chunk.rows, key_dim, [&](int i, int j) {
      query.at(i, j) = bounded_exp(query.at(i, j) + units.before(number, j));
    });
    product(
        block, chunk.rows, columns,
        [&](int i, int j, float x) {
          const std::int64_t time = chunk.time + i;
          const float factor =
              shape.divides
                  ? Scalars::reciprocal(shape.divisors[divisor_place(shape, chunk.head, time)])
                  : 1.F;
          out.set(chunk.head, time, first + j, x * factor);
        },
        Term{key_dim, [&](int i, int d) { return query.at(i, d); },
             [&](int d, int j) { return sum.at(d, j); }},
        Term{chunk.rows, [&](int i, int t) { return weights.at(i, t); },
             [&](int t, int j) { return values.at(t, j); }});
  }
};

// d(q), d(k) and d(v) of a chunk. With g the gradient of the undivided sums, s the divisors' slopes
// and w[i][j] = sum_d e^(q_i + k_j - u_i), the weights' gradients are g_i . v_j + s_i.
struct LogarithmGradients {
  LinearAttention shape;
  HeadsIn q;
  HeadsIn k;
  HeadsIn v;
  HeadsIn d_out;
  HeadsOut d_q;
  HeadsOut d_k;
  HeadsOut d_v;
  Units units;
  RowUnits of_rows;
  const float* before;       // of values, [chunks, key_dim, value_dim]
  const float* behind;       // of gradients
  const float* slopes;       // where it was divided; and what they are a factor of:
  const float* keys_before;  // [chunks, key_dim]
  const float* queries_behind;

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
    const Tile scores = tiles.take(kChunk, kChunk);  // the weights, then their gradients
    const Tile sum = tiles.take(key_dim, value_dim);
    const Tile result = tiles.take(kChunk, key_dim);
    read_queries(block, shape, q, chunk, of_rows, query);
    read_rows(block, k, chunk, key);
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
    const auto slope = [&](int row) {
      return shape.divides ? slopes[divisor_place(shape, chunk.head, chunk.time + row)] : 0.F;
    };

    read_sum(behind);
    weights_inside(block, rows, key_dim, query, key, scores);
    for_elements(block, rows, key_dim, [&](int i, int j) {
      result.at(i, j) = bounded_exp(key.at(i, j) - units.behind(number, j));
    });
    product(
        block, rows, value_dim,
        [&](int i, int j, float x) { d_v.set(chunk.head, chunk.time + i, j, x); },
        Term{key_dim, [&](int i, int d) { return result.at(i, d); },
             [&](int d, int j) { return sum.at(d, j); }},
        Term{rows, [&](int i, int t) { return scores.at(t, i); },
             [&](int t, int j) { return gradient.at(t, j); }});
    product(
        block, rows, rows,
        [&](int i, int j, float x) { scores.at(i, j) = j <= i ? x + slope(i) : 0.F; },
        Term{value_dim, [&](int i, int d) { return gradient.at(i, d); },
             [&](int d, int j) { return values.at(j, d); }});
    product(
        block, rows, key_dim,
        [&](int i, int j, float x) {
          const float queries = shape.divides ? queries_behind[number * shape.key_dim + j] : 0.F;
          result.at(i, j) *= x + queries;
        },
        Term{value_dim, [&](int i, int d) { return values.at(i, d); },
             [&](int d, int j) { return sum.at(j, d); }});
    sum_terms(
        block, rows, key_dim, rows,
        [&](int i, int j, float x) { d_k.set(chunk.head, chunk.time + i, j, result.at(i, j) + x); },
        [&](int i, int j, int t) {
          return scores.at(t, i) * bounded_exp(query.at(t, j) + key.at(i, j));
        });
    read_sum(before);
    product(
        block, rows, key_dim,
        [&](int i, int j, float x) {
          const float keys = shape.divides ? keys_before[number * shape.key_dim + j] : 0.F;
          result.at(i, j) =
              (x + slope(i) * keys) * bounded_exp(query.at(i, j) + units.before(number, j));
        },
        Term{value_dim, [&](int i, int d) { return gradient.at(i, d); },
             [&](int d, int j) { return sum.at(j, d); }});
    sum_terms(
        block, rows, key_dim, rows,
        [&](int i, int j, float x) { d_q.set(chunk.head, chunk.time + i, j, result.at(i, j) + x); },
        [&](int i, int j, int t) {
          return scores.at(i, t) * bounded_exp(query.at(i, j) + key.at(t, j));
        });
  }
};

template <typename Launcher>
struct LogarithmAttentions {
  using Floats = typename Launcher::template Workspace<float>;

  // Of whole sequences: there is no state.
  static void forward(const LinearAttention& given, const HeadsIn& q, const HeadsIn& k,
                      const HeadsIn& v, const HeadsOut& out) {
    const Floats divisors(given.divides && given.divisors == nullptr ? times_of(given) : 0);
    LinearAttention shape = given;
    if (given.divisors == nullptr) {
      shape.divisors = divisors.data();
    }
    const Past past(shape, q, k, v, shape.divisors);
    const std::int64_t parts = (shape.value_dim + kTileSide - 1) / kTileSide;
    Launcher::blocks(
        chunk_count(shape) * parts, kTileThreads, LogarithmOutput::shared_floats(shape),
        LogarithmOutput{shape, q, k, v, out, past.units, past.of_rows, past.sums.data(), parts});
  }

  static void backward(const LinearAttention& shape, const HeadsIn& q, const HeadsIn& k,
                       const HeadsIn& v, const HeadsIn& d_out, const HeadsOut& d_q,
                       const HeadsOut& d_k, const HeadsOut& d_v) {
    const Past past(shape, q, k, v, nullptr);
    const Floats slopes(shape.divides ? times_of(shape) : 0);
    const Floats behind(states_of(shape)), queries(shape.divides ? features_of(shape) : 0);
    if (shape.divides) {
      Launcher::rows(
          (shape.last - shape.first) * shape.time,
          DivisorSlope{shape, heads(shape, shape.output, shape.value_dim), d_out, slopes.data()});
    }
    sum_chunks(shape, LogarithmSums{shape, q, d_out, past.units, past.of_rows, slopes.data(),
                                    behind.data(), shape.divides ? queries.data() : nullptr, true});
    Launcher::blocks(chunk_count(shape), kTileThreads, LogarithmGradients::shared_floats(shape),
                     LogarithmGradients{shape, q, k, v, d_out, d_q, d_k, d_v, past.units,
                                        past.of_rows, past.sums.data(), behind.data(),
                                        slopes.data(), past.keys.data(), queries.data()});
  }

  // The shared memory of a block, of either pass.
  static constexpr std::int64_t most_shared_floats(const LinearAttention& shape) {
    std::int64_t most = 0;
    for (const std::int64_t floats :
         {LogarithmSums::shared_floats(shape), LogarithmOutput::shared_floats(shape),
          LogarithmGradients::shared_floats(shape),
          shape.divides ? RowWeights::shared_floats(shape) : 0}) {
      most = floats > most ? floats : most;
    }
    return most;
  }

 private:
  // What both passes ask of the tokens before each chunk, and the rows' units.
  struct Past {
    // divisors: where they go; null: they are known.
    Past(const LinearAttention& shape, const HeadsIn& q, const HeadsIn& k, const HeadsIn& v,
         float* divisors)
        : maxima(features_of(shape)),
          logarithms(shape.divides ? times_of(shape) : 0),
          sums(states_of(shape)),
          keys(shape.divides ? features_of(shape) : 0),
          units{maxima.data(), shape.key_dim, chunks_of(shape)},
          of_rows{shape.divides ? logarithms.data() : nullptr} {
      Launcher::elements(features_of(shape), ChunkMaxima{shape, k, maxima.data()});
      Launcher::elements((shape.last - shape.first) * shape.key_dim,
                         MaximaSoFar{shape, maxima.data()});
      sum_chunks(shape, LogarithmSums{shape, k, v, units, of_rows, nullptr, sums.data(),
                                      shape.divides ? keys.data() : nullptr, false});
      if (shape.divides) {
        Launcher::blocks(chunk_count(shape), kTileThreads, RowWeights::shared_floats(shape),
                         RowWeights{shape, q, k, units, keys.data(), of_rows, divisors});
      }
    }

    Floats maxima;
    Floats logarithms;
    Floats sums;
    Floats keys;
    Units units;
    RowUnits of_rows;
  };

  static void sum_chunks(const LinearAttention& shape, const LogarithmSums& body) {
    Launcher::blocks(chunk_count(shape), kTileThreads, LogarithmSums::shared_floats(shape), body);
    const std::int64_t features = (shape.last - shape.first) * shape.key_dim;
    Launcher::elements(
        features * shape.value_dim,
        LogarithmSumsAround{shape, body.units, body.sums, shape.value_dim, body.backwards});
    if (body.features != nullptr) {
      Launcher::elements(features,
                         LogarithmSumsAround{shape, body.units, body.features, 1, body.backwards});
    }
  }
};

}  // namespace transnormer::ops::cuda
