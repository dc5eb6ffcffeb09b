// Kernels over rows. A row belongs to a group of threads: `group.size` of them, group.each(f) calls
// f(thread) in each, group.reduce(f, combine) puts together what f(thread) returns in all and gives
// the same to all.
#pragma once

#include "ops/cuda/mask.h"
#include "ops/cuda/portable.h"

namespace transnormer::ops::cuda {

using kernels::Residual;

TRANSNORMER_DEVICE inline float inverse_rms(float squares, std::int64_t dim, float eps) {
  return 1.F / sqrtf(squares / static_cast<float>(dim) + eps);
}

template <typename X, typename Y>
struct SrmsRow {
  const X* xs;
  Y* ys;
  std::int64_t dim;
  float eps;

  template <typename Group>
  TRANSNORMER_DEVICE void operator()(const Group& group, std::int64_t row) const {
    const X* x = xs + row * dim;
    Y* y = ys + row * dim;
    const float squares = group.reduce(
        [&](int thread) {
          float sum = 0;
          for (std::int64_t i = thread; i < dim; i += group.size) {
            sum += value(x[i]) * value(x[i]);
          }
          return sum;
        },
        Sum{});
    const float scale = inverse_rms(squares, dim, eps);
    group.each([&](int thread) {
      for (std::int64_t i = thread; i < dim; i += group.size) {
        y[i] = rounded<Y>(value(x[i]) * scale);
      }
    });
  }
};

// How the norm's gradient g reaches its argument x: (g - x * along) * scale.
struct NormSlope {
  float along;
  float scale;
};

template <typename Group, typename X, typename Y>
TRANSNORMER_DEVICE NormSlope norm_slope(const Group& group, const X* x, const Y* g,
                                        std::int64_t dim, float eps) {
  const auto sum_of = [&](auto term) {
    return group.reduce(
        [&](int thread) {
          float sum = 0;
          for (std::int64_t i = thread; i < dim; i += group.size) {
            sum += term(i);
          }
          return sum;
        },
        Sum{});
  };
  const float squares = sum_of([&](std::int64_t i) { return value(x[i]) * value(x[i]); });
  const float products = sum_of([&](std::int64_t i) { return value(x[i]) * value(g[i]); });
  const float scale = inverse_rms(squares, dim, eps);
  return {products / static_cast<float>(dim) * scale * scale, scale};
}

template <typename X, typename Y>
struct SrmsBackwardRow {
  const X* xs;
  const Y* d_ys;
  X* d_xs;
  std::int64_t dim;
  float eps;

  template <typename Group>
  TRANSNORMER_DEVICE void operator()(const Group& group, std::int64_t row) const {
    const X* x = xs + row * dim;
    const Y* g = d_ys + row * dim;
    X* d_x = d_xs + row * dim;
    const NormSlope slope = norm_slope(group, x, g, dim, eps);
    group.each([&](int thread) {
      for (std::int64_t i = thread; i < dim; i += group.size) {
        d_x[i] = rounded<X>((value(g[i]) - value(x[i]) * slope.along) * slope.scale);
      }
    });
  }
};

// Calls body(i, factor of dropout) for a thread's elements of a row, groups of four as the mask is
// made.
template <typename Group, typename Body>
TRANSNORMER_DEVICE void for_own(const Group& group, int thread, const Residual& r, std::int64_t row,
                                bool drops, Body body) {
  if (!drops) {
    for (std::int64_t i = thread; i < r.dim; i += group.size) {
      body(i, 1.F);
    }
    return;
  }
  const std::uint64_t first =
      r.mask.first + static_cast<std::uint64_t>(row % r.rows_per_sample * r.dim);
  const SampleMask mask(r.mask, row / r.rows_per_sample);
  for (std::int64_t i = thread; i < groups_touched(first, r.dim); i += group.size) {
    for_group(mask, first, r.dim, i, body);
  }
}

template <typename T>
struct ResidualRow {
  Residual r;
  const float* xs;
  const T* ys;
  float* sums;
  T* norms;  // may be null

  template <typename Group>
  TRANSNORMER_DEVICE void operator()(const Group& group, std::int64_t number) const {
    const std::int64_t row = r.first + number;
    const std::int64_t at = row * r.dim;
    const float squares = group.reduce(
        [&](int thread) {
          float sum = 0;
          for_own(group, thread, r, row, r.drops, [&](std::int64_t i, float factor) {
            const float s = xs[at + i] + value(ys[at + i]) * factor;
            sums[at + i] = s;
            sum += s * s;
          });
          return sum;
        },
        Sum{});
    if (norms == nullptr) {
      return;
    }
    const float scale = inverse_rms(squares, r.dim, r.eps);
    group.each([&](int thread) {
      for (std::int64_t i = thread; i < r.dim; i += group.size) {
        norms[at + i] = rounded<T>(sums[at + i] * scale);
      }
    });
  }
};

template <typename T>
struct ResidualBackwardRow {
  Residual r;
  const float* sums;
  const float* d_sums;  // may be null, as each of the following
  const T* d_norms;
  float* d_xs;
  T* d_ys;

  template <typename Group>
  TRANSNORMER_DEVICE void operator()(const Group& group, std::int64_t number) const {
    const std::int64_t row = r.first + number;
    const std::int64_t at = row * r.dim;
    NormSlope slope{};
    if (d_norms != nullptr) {
      slope = norm_slope(group, sums + at, d_norms + at, r.dim, r.eps);
    }
    group.each([&](int thread) {
      for_own(group, thread, r, row, r.drops && d_ys != nullptr, [&](std::int64_t i, float factor) {
        float g = d_sums == nullptr ? 0.F : d_sums[at + i];
        if (d_norms != nullptr) {
          g += (value(d_norms[at + i]) - sums[at + i] * slope.along) * slope.scale;
        }
        if (d_xs != nullptr) {
          d_xs[at + i] = g;
        }
        if (d_ys != nullptr) {
          d_ys[at + i] = rounded<T>(g * factor);
        }
      });
    });
  }
};

template <typename Launcher>
struct Rows {
  static void srms_norm(In x, Out y, std::int64_t rows, std::int64_t dim, float eps) {
    by_type(x.type, [&](auto* t) {
      by_type(y.type, [&](auto* u) {
        Launcher::rows(rows, SrmsRow{as(x, t), as(y, u), dim, eps});
      });
    });
  }

  static void srms_norm_backward(In x, In d_y, Out d_x, std::int64_t rows, std::int64_t dim,
                                 float eps) {
    by_type(x.type, [&](auto* t) {
      by_type(d_y.type, [&](auto* u) {
        Launcher::rows(rows, SrmsBackwardRow{as(x, t), as(d_y, u), as(d_x, t), dim, eps});
      });
    });
  }

  static void residual(const Residual& r, In x, In y, Out sum, Out normed) {
    by_type(y.type, [&](auto* t) {
      Launcher::rows(r.last - r.first, ResidualRow{r, static_cast<const float*>(x.data), as(y, t),
                                                   static_cast<float*>(sum.data), as(normed, t)});
    });
  }

  static void residual_backward(const Residual& r, In sum, In d_sum, In d_normed, Out d_x,
                                Out d_y) {
    by_type(d_normed.data == nullptr ? d_y.type : d_normed.type, [&](auto* t) {
      Launcher::rows(r.last - r.first,
                     ResidualBackwardRow{r, static_cast<const float*>(sum.data),
                                         static_cast<const float*>(d_sum.data), as(d_normed, t),
                                         static_cast<float*>(d_x.data), as(d_y, t)});
    });
  }
};

}  // namespace transnormer::ops::cuda
