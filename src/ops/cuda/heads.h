// Tensors [batch, time, heads, dim] as the attentions' kernels see them, and their rows on the way
// between the device's memory and a block's.
#pragma once

#include "ops/cuda/encoding.h"
#include "ops/cuda/tiles.h"

namespace transnormer::ops::cuda {

// Rows of one time are `stride` elements from those of the next, a row's heads side by side.
template <typename Tensor>
struct Heads {
  Tensor x;
  std::int64_t time;
  std::int64_t heads;
  std::int64_t dim;
  std::int64_t stride;

  // `head` is of batch * heads.
  [[nodiscard]] TRANSNORMER_DEVICE std::int64_t place(std::int64_t head, std::int64_t t,
                                                      std::int64_t i) const {
    return (head / heads * time + t) * stride + head % heads * dim + i;
  }
};

struct HeadsIn : Heads<In> {
  [[nodiscard]] TRANSNORMER_DEVICE float at(std::int64_t head, std::int64_t t,
                                            std::int64_t i) const {
    return load(x, place(head, t, i));
  }
};

struct HeadsOut : Heads<Out> {
  TRANSNORMER_DEVICE void set(std::int64_t head, std::int64_t t, std::int64_t i, float to) const {
    store(x, place(head, t, i), to);
  }
};

// `stride` as in kernels::RowStrides: 0 where the tensor is dense.
template <typename Shape>
HeadsIn heads(const Shape& shape, In x, std::int64_t dim, std::int64_t stride = 0) {
  return {{x, shape.time, shape.heads, dim, stride > 0 ? stride : shape.heads * dim}};
}
template <typename Shape>
HeadsOut heads(const Shape& shape, Out x, std::int64_t dim, std::int64_t stride = 0) {
  return {{x, shape.time, shape.heads, dim, stride > 0 ? stride : shape.heads * dim}};
}

// Rows of one head from a time on.
struct Span {
  std::int64_t head;  // of batch * heads
  std::int64_t time;
  int rows;
};

template <typename Block>
TRANSNORMER_DEVICE void read_rows(const Block& block, const HeadsIn& x, const Span& s,
                                  const Tile& to) {
  for_elements(block, s.rows, static_cast<int>(x.dim),
               [&](int i, int j) { to.at(i, j) = x.at(s.head, s.time + i, j); });
}

// The same, encoded and times `scale`.
template <typename Block>
TRANSNORMER_DEVICE void read_encoded(const Block& block, Feature feature, const Lrpe& lrpe,
                                     const HeadsIn& x, const Span& s, float scale, const Tile& to) {
  block.rows(s.rows, [&](const auto& group, int row) {
    encode_row(
        group, feature, lrpe, s.time + row, x.dim,
        [&](std::int64_t i) { return x.at(s.head, s.time + row, i); }, scale,
        [&](std::int64_t i, float y) { to.at(row, static_cast<int>(i)) = y; });
  });
}

// Where a block of threads leaves its part of d(theta), [dim / 2]; null where there is no LRPE.
using ThetaPart = double*;

struct NoFeatureGradients {
  TRANSNORMER_DEVICE float operator()(int /*row*/, std::int64_t /*i*/) const { return 0; }
};

// Writes d(x) of scale * `gradient`, that of the encoded rows, which is used up, and of
// beside(row, i), that of the features before LRPE.
template <typename Block, typename Beside = NoFeatureGradients>
TRANSNORMER_DEVICE void write_decoded(const Block& block, Feature feature, const Lrpe& lrpe,
                                      const HeadsIn& x, const Span& s, float scale,
                                      const Tile& gradient, const HeadsOut& d_x, ThetaPart d_theta,
                                      Beside beside = {}) {
  block.rows(s.rows, [&](const auto& group, int row) {
    const std::int64_t time = s.time + row;
    encode_row_backward(
        group, feature, lrpe, time, x.dim, [&](std::int64_t i) { return x.at(s.head, time, i); },
        scale, [&](std::int64_t i) { return gradient.at(row, static_cast<int>(i)); },
        [&](std::int64_t i, float d) { d_x.set(s.head, time, i, d); },
        [&](std::int64_t pair, float d_angle) {
          gradient.at(row, static_cast<int>(2 * pair)) = d_angle;
        },
        [&](std::int64_t i) { return beside(row, i); });
  });
  if (d_theta == nullptr) {
    return;
  }
  block.each([&](int thread) {
    for (std::int64_t pair = thread; pair < x.dim / 2; pair += block.size) {
      double sum = 0;
      for (int row = 0; row < s.rows; ++row) {
        sum += lrpe.position[table_row(lrpe, s.time + row)] *
               static_cast<double>(gradient.at(row, static_cast<int>(2 * pair)));
      }
      d_theta[pair] = sum;
    }
  });
}

// d_theta[head][pair] += the parts of the head's blocks of threads, [heads, parts, pairs].
struct ThetaSum {
  const double* partial;
  double* d_theta;
  std::int64_t parts;
  std::int64_t pairs;

  TRANSNORMER_DEVICE void operator()(std::int64_t i) const {
    const std::int64_t head = quotient(i, pairs);
    const double* part = partial + head * parts * pairs + (i - head * pairs);
    double sum = 0;
    for (std::int64_t p = 0; p < parts; ++p) {
      sum += part[p * pairs];
    }
    d_theta[i] += sum;
  }
};

}  // namespace transnormer::ops::cuda
