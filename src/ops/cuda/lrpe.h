// LRPE by itself: a reflection and a rotation of each head's vector. A group of threads works on
// a row or several, see ops/cuda/rows.h.
#pragma once

#include "ops/cuda/portable.h"
#include "ops/cuda/sums.h"

namespace transnormer::ops::cuda {

using kernels::LrpeRows;

// The sum of term(i) over i below `count`, the same in all threads.
template <typename Group, typename Term>
TRANSNORMER_DEVICE float sum_over(const Group& group, std::int64_t count, Term term) {
  return group.reduce(
      [&](int thread) {
        float sum = 0;
        for (std::int64_t i = thread; i < count; i += group.size) {
          sum += term(i);
        }
        return sum;
      },
      Sum{});
}

// Of a (batch, time) pair.
TRANSNORMER_DEVICE inline std::int64_t table_row(const LrpeRows& shape, std::int64_t row) {
  return (shape.lrpe.first + row % shape.time) % shape.lrpe.rows;
}

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
    const float* turn = shape.lrpe.rotation + table_row(shape, head / shape.heads) * shape.dim;
    const float* unit = shape.lrpe.unit;
    const float twice =
        2 * sum_over(group, shape.dim, [&](std::int64_t i) { return value(x[i]) * unit[i]; });
    const auto reflected = [&](std::int64_t i) { return value(x[i]) - unit[i] * twice; };
    group.each([&](int thread) {
      for (std::int64_t i = 2 * thread; i < shape.dim; i += 2 * group.size) {
        const float even = reflected(i), odd = reflected(i + 1);
        y[i] = rounded<T>(even * turn[i] - odd * turn[i + 1]);
        y[i + 1] = rounded<T>(odd * turn[i] + even * turn[i + 1]);
      }
    });
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
      for (std::int64_t head = 0; head < shape.heads; ++head) {
        backward(group, row, (row * shape.heads + head) * shape.dim, own);
      }
    }
  }

 private:
  // Turned back, the gradient g meets the reflected input z: d(angle) = g_odd z_even - g_even
  // z_odd.
  template <typename Group>
  TRANSNORMER_DEVICE void backward(const Group& group, std::int64_t row, std::int64_t at,
                                   double* own) const {
    const T* x = xs + at;
    const T* d_y = d_ys + at;
    const float* unit = shape.lrpe.unit;
    const float* turn = shape.lrpe.rotation + table_row(shape, row) * shape.dim;
    const double position = shape.lrpe.position[table_row(shape, row)];
    const auto turned = [&](std::int64_t i) {
      const std::int64_t even = i & ~std::int64_t{1};
      const float sine = i == even ? -turn[even + 1] : turn[even + 1];
      return value(d_y[i]) * turn[even] - value(d_y[i ^ 1]) * sine;
    };
    const float twice_x =
        2 * sum_over(group, shape.dim, [&](std::int64_t i) { return value(x[i]) * unit[i]; });
    const float twice_g =
        2 * sum_over(group, shape.dim, [&](std::int64_t i) { return turned(i) * unit[i]; });
    group.each([&](int thread) {
      for (std::int64_t pair = thread; pair < shape.dim / 2; pair += group.size) {
        const std::int64_t even = 2 * pair, odd = even + 1;
        const float g_even = turned(even), g_odd = turned(odd);
        const float z_even = value(x[even]) - unit[even] * twice_x;
        const float z_odd = value(x[odd]) - unit[odd] * twice_x;
        d_xs[at + even] = rounded<T>(g_even - unit[even] * twice_g);
        d_xs[at + odd] = rounded<T>(g_odd - unit[odd] * twice_g);
        own[pair] += position * (static_cast<double>(g_odd) * static_cast<double>(z_even) -
                                 static_cast<double>(g_even) * static_cast<double>(z_odd));
      }
    });
  }
};

template <typename Launcher>
struct Lrpe {
  static void lrpe(const LrpeRows& shape, In x, Out y) {
    by_type(x.type, [&](auto* t) {
      Launcher::rows((shape.last - shape.first) * shape.heads, LrpeHead{shape, as(x, t), as(y, t)});
    });
  }

  static void lrpe_backward(const LrpeRows& shape, In x, In d_y, Out d_x, double* d_theta) {
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
