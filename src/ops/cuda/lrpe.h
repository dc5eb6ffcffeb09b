// LRPE by itself.
#pragma once

#include "ops/cuda/encoding.h"
#include "ops/cuda/sums.h"

namespace transnormer::ops::cuda {

using kernels::LrpeRows;

template <typename T>
struct LrpeHead {
  LrpeRows shape;
  const T* xs;
  T* ys;

  template <typename Group>
  TRANSNORMER_DEVICE void operator()(const Group& group, std::int64_t number) const {
    const std::int64_t head = shape.first * shape.heads + number;
    const T* x = xs + head * shape.dim;
    T* y = ys + head * shape.dim;
    encode_row(
        group, Feature::none, shape.lrpe, head / shape.heads % shape.time, shape.dim,
        [&](std::int64_t i) { return value(x[i]); }, 1,
        [&](std::int64_t i, float encoded) { y[i] = rounded<T>(encoded); });
  }
};

inline constexpr std::int64_t kLrpeRows = 16;  // of (batch, time) that a group of threads works on

// d(x) of some rows, and their part of d(theta).
template <typename T>
struct LrpeBackwardRows {
  LrpeRows shape;
  const T* xs;
  const T* d_ys;
  T* d_xs;
  double* partial;  // [parts, dim / 2]

  template <typename Group>
  TRANSNORMER_DEVICE void operator()(const Group& group, std::int64_t part) const {
    double* own = partial + part * (shape.dim / 2);
    group.each([&](int thread) {
      for (std::int64_t i = thread; i < shape.dim / 2; i += group.size) {
        own[i] = 0;
      }
    });
    const std::int64_t first = shape.first + part * kLrpeRows;
    const std::int64_t last = first + kLrpeRows < shape.last ? first + kLrpeRows : shape.last;
    for (std::int64_t row = first; row < last; ++row) {
      const std::int64_t time = row % shape.time;
      const double position = shape.lrpe.position[table_row(shape.lrpe, time)];
      for (std::int64_t head = 0; head < shape.heads; ++head) {
        const std::int64_t at = (row * shape.heads + head) * shape.dim;
        encode_row_backward(
            group, Feature::none, shape.lrpe, time, shape.dim,
            [&](std::int64_t i) { return value(xs[at + i]); }, 1,
            [&](std::int64_t i) { return value(d_ys[at + i]); },
            [&](std::int64_t i, float d) { d_xs[at + i] = rounded<T>(d); },
            [&](std::int64_t pair, float d_angle) {
              own[pair] += position * static_cast<double>(d_angle);
            });
      }
    }
  }
};

template <typename Launcher>
struct LrpeAlone {
  static void forward(const LrpeRows& shape, In x, Out y) {
    by_type(x.type, [&](auto* t) {
      Launcher::rows((shape.last - shape.first) * shape.heads, LrpeHead{shape, as(x, t), as(y, t)});
    });
  }

  static void backward(const LrpeRows& shape, In x, In d_y, Out d_x, double* d_theta) {
    const std::int64_t parts = (shape.last - shape.first + kLrpeRows - 1) / kLrpeRows;
    const typename Launcher::template Workspace<double> partial(parts * (shape.dim / 2));
    by_type(x.type, [&](auto* t) {
      Launcher::rows(parts,
                     LrpeBackwardRows{shape, as(x, t), as(d_y, t), as(d_x, t), partial.data()});
    });
    add_sums_of_rows<Launcher, double, double>(partial.data(), d_theta, parts, shape.dim / 2,
                                               shape.dim / 2);
  }
};

}  // namespace transnormer::ops::cuda
