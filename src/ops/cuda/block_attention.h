// Causal attention inside blocks: softmax or ReLU of the scores, with dropout on the weights. One
// block of a head to a block of threads.
#pragma once

#include "ops/cuda/heads.h"
#include "ops/cuda/mask.h"
#include "ops/cuda/rows.h"
#include "ops/cuda/tiles.h"

namespace transnormer::ops::cuda {

using kernels::BlockAttention;

TRANSNORMER_BOTH constexpr std::int64_t spans_of(const BlockAttention& shape) {
  return (shape.time + shape.block - 1) / shape.block;
}

// `number` is of all heads' blocks.
TRANSNORMER_DEVICE inline Span span_of(const BlockAttention& shape, std::int64_t number) {
  const std::int64_t time = number % spans_of(shape) * shape.block;
  const std::int64_t rest = shape.time - time;
  return {shape.first + number / spans_of(shape), time,
          static_cast<int>(rest < shape.block ? rest : shape.block)};
}

// What dropout multiplies the weights of row i of a span by.
class RowMask {
 public:
  TRANSNORMER_DEVICE RowMask(const BlockAttention& shape, const Span& span, int row)
      : mask_(shape.mask, span.head / shape.heads),
        first_(shape.mask.first +
               static_cast<std::uint64_t>(
                   ((span.time + row) * shape.heads + span.head % shape.heads) * shape.block)),
        drops_(shape.drops) {}

  [[nodiscard]] TRANSNORMER_DEVICE float at(int column) const {
    return drops_ ? mask_.at(first_ + static_cast<std::uint64_t>(column)) : 1.F;
  }

 private:
  SampleMask mask_;
  std::uint64_t first_;
  bool drops_;
};

struct Maximum {
  TRANSNORMER_DEVICE float operator()(float a, float b) const { return a > b ? a : b; }
};

// Scores of row i become its weights before dropout, by one warp.
template <typename Group>
TRANSNORMER_DEVICE void make_weights(const Group& group, const Tile& scores, int i, bool softmax) {
  const auto for_seen = [&](int thread, auto body) {
    for (int j = thread; j <= i; j += group.size) {
      body(scores.at(i, j));
    }
  };
  if (!softmax) {
    group.each([&](int thread) { for_seen(thread, [](float& s) { s = s < 0.F ? 0.F : s; }); });
    return;
  }
  const float top = group.reduce(
      [&](int thread) {
        float best = -INFINITY;
        for_seen(thread, [&](float& s) { best = s > best ? s : best; });
        return best;
      },
      Maximum{});
  const float sum = group.reduce(
      [&](int thread) {
        float own = 0;
        for_seen(thread, [&](float& s) {
          s = expf(s - top);
          own += s;
        });
        return own;
      },
      Sum{});
  const float scale = 1.F / sum;
  group.each([&](int thread) { for_seen(thread, [&](float& s) { s *= scale; }); });
}

struct BlockOutput {
  BlockAttention shape;
  HeadsIn q;
  HeadsIn k;
  HeadsIn v;
  HeadsOut out;

  static constexpr std::int64_t shared_floats(const BlockAttention& s) {
    return 3 * tile_floats(s.block, s.dim) + tile_floats(s.block, s.block);
  }

  template <typename Block>
  TRANSNORMER_DEVICE void operator()(const Block& block, std::int64_t number, float* shared) const {
    const Span span = span_of(shape, number);
    const int rows = span.rows;
    const int dim = static_cast<int>(shape.dim);
    Tiles tiles(shared);
    const Tile query = tiles.take(shape.block, dim);
    const Tile key = tiles.take(shape.block, dim);
    const Tile values = tiles.take(shape.block, dim);
    const Tile weights = tiles.take(shape.block, shape.block);
    read_encoded(block, shape.feature, shape.lrpe, q, span, shape.scale, query);
    read_encoded(block, shape.feature, shape.lrpe, k, span, 1, key);
    read_rows(block, v, span, values);
    product(
        block, rows, rows, [&](int i, int j, float x) { weights.at(i, j) = x; },
        Term{dim, [&](int i, int d) { return query.at(i, d); },
             [&](int d, int j) { return key.at(j, d); }});
    block.rows(rows, [&](const auto& group, int i) {
      make_weights(group, weights, i, shape.softmax);
      const RowMask mask(shape, span, i);
      group.each([&](int thread) {
        for (int j = thread; j < rows; j += group.size) {
          weights.at(i, j) = j <= i ? weights.at(i, j) * mask.at(j) : 0.F;
        }
      });
    });
    product(
        block, rows, dim, [&](int i, int j, float x) { out.set(span.head, span.time + i, j, x); },
        Term{rows, [&](int i, int t) { return weights.at(i, t); },
             [&](int t, int j) { return values.at(t, j); }});
  }
};

struct BlockGradients {
  BlockAttention shape;
  HeadsIn q;
  HeadsIn k;
  HeadsIn v;
  HeadsIn d_out;
  HeadsOut d_q;
  HeadsOut d_k;
  HeadsOut d_v;
  double* theta_parts;  // [blocks, 2, dim / 2]; null where there is no LRPE

  static constexpr std::int64_t shared_floats(const BlockAttention& s) {
    return 4 * tile_floats(s.block, s.dim) + 2 * tile_floats(s.block, s.block);
  }

  template <typename Block>
  TRANSNORMER_DEVICE void operator()(const Block& block, std::int64_t number, float* shared) const {
    const Span span = span_of(shape, number);
    const int rows = span.rows;
    const int dim = static_cast<int>(shape.dim);
    Tiles tiles(shared);
    const Tile query = tiles.take(shape.block, dim);
    const Tile key = tiles.take(shape.block, dim);
    const Tile values = tiles.take(shape.block, dim);  // at last, d(queries) and d(keys)
    const Tile gradient = tiles.take(shape.block, dim);
    const Tile weights = tiles.take(shape.block, shape.block);   // at last, after dropout
    const Tile d_scores = tiles.take(shape.block, shape.block);  // at first, d(weights)
    read_encoded(block, shape.feature, shape.lrpe, q, span, shape.scale, query);
    read_encoded(block, shape.feature, shape.lrpe, k, span, 1, key);
    read_rows(block, v, span, values);
    read_rows(block, d_out, span, gradient);
    product(
        block, rows, rows, [&](int i, int j, float x) { weights.at(i, j) = x; },
        Term{dim, [&](int i, int d) { return query.at(i, d); },
             [&](int d, int j) { return key.at(j, d); }});
    product(
        block, rows, rows, [&](int i, int j, float x) { d_scores.at(i, j) = x; },
        Term{dim, [&](int i, int d) { return gradient.at(i, d); },
             [&](int d, int j) { return values.at(j, d); }});
    block.rows(rows, [&](const auto& group, int i) {
      make_weights(group, weights, i, shape.softmax);
      through_weights(group, RowMask(shape, span, i), weights, d_scores, i, rows);
    });
    product(
        block, rows, dim, [&](int i, int j, float x) { d_v.set(span.head, span.time + i, j, x); },
        Term{rows, [&](int i, int t) { return weights.at(t, i); },
             [&](int t, int j) { return gradient.at(t, j); }});
    product(
        block, rows, dim, [&](int i, int j, float x) { values.at(i, j) = x; },
        Term{rows, [&](int i, int t) { return d_scores.at(i, t); },
             [&](int t, int j) { return key.at(t, j); }});
    write_decoded(block, shape.feature, shape.lrpe, q, span, shape.scale, values, d_q,
                  theta_part(number, 0));
    product(
        block, rows, dim, [&](int i, int j, float x) { values.at(i, j) = x; },
        Term{rows, [&](int i, int t) { return d_scores.at(t, i); },
             [&](int t, int j) { return query.at(t, j); }});
    write_decoded(block, shape.feature, shape.lrpe, k, span, 1, values, d_k, theta_part(number, 1));
  }

 private:
  [[nodiscard]] TRANSNORMER_DEVICE ThetaPart theta_part(std::int64_t number, int which) const {
    return theta_parts == nullptr ? nullptr : theta_parts + (2 * number + which) * (shape.dim / 2);
  }

  // d(weights) after dropout of row i -> d(scores); the weights -> those after dropout.
  template <typename Group>
  TRANSNORMER_DEVICE void through_weights(const Group& group, const RowMask& mask,
                                          const Tile& weights, const Tile& d, int i,
                                          int rows) const {
    const float along = group.reduce(
        [&](int thread) {
          float sum = 0;
          for (int j = thread; j <= i; j += group.size) {
            d.at(i, j) *= mask.at(j);
            sum += d.at(i, j) * weights.at(i, j);
          }
          return sum;
        },
        Sum{});
    group.each([&](int thread) {
      for (int j = thread; j < rows; j += group.size) {
        const float weight = weights.at(i, j);
        const float g = d.at(i, j);
        const float d_score = shape.softmax ? weight * (g - along) : (weight <= 0.F ? 0.F : g);
        d.at(i, j) = j <= i ? d_score : 0.F;
        weights.at(i, j) = j <= i ? weight * mask.at(j) : 0.F;
      }
    });
  }
};

template <typename Launcher>
struct BlockAttentions {
  static void forward(const BlockAttention& shape, In q, In k, In v, Out out) {
    Launcher::blocks(
        span_count(shape), kTileThreads, BlockOutput::shared_floats(shape),
        BlockOutput{shape, heads(shape, q, shape.dim, shape.strides.q),
                    heads(shape, k, shape.dim, shape.strides.k),
                    heads(shape, v, shape.dim, shape.strides.v), heads(shape, out, shape.dim)});
  }

  static void backward(const BlockAttention& shape, In q, In k, In v, In d_out, Out d_q, Out d_k,
                       Out d_v, double* d_theta) {
    const std::int64_t pairs = shape.lrpe.rotation == nullptr ? 0 : shape.dim / 2;
    const typename Launcher::template Workspace<double> theta(2 * span_count(shape) * pairs);
    Launcher::blocks(
        span_count(shape), kTileThreads, BlockGradients::shared_floats(shape),
        BlockGradients{shape, heads(shape, q, shape.dim, shape.strides.q),
                       heads(shape, k, shape.dim, shape.strides.k),
                       heads(shape, v, shape.dim, shape.strides.v), heads(shape, d_out, shape.dim),
                       heads(shape, d_q, shape.dim, shape.gradient_strides.q),
                       heads(shape, d_k, shape.dim, shape.gradient_strides.k),
                       heads(shape, d_v, shape.dim, shape.gradient_strides.v),
                       pairs > 0 ? theta.data() : nullptr});
    Launcher::elements(
        (shape.last - shape.first) * pairs,
        ThetaSum{theta.data(), d_theta + shape.first * pairs, 2 * spans_of(shape), pairs});
  }

 private:
  static std::int64_t span_count(const BlockAttention& shape) {
    return (shape.last - shape.first) * spans_of(shape);
  }
};

}  // namespace transnormer::ops::cuda
