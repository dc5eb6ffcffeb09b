// What queries and keys go through before an attention, and what their gradients go through behind
// it: a feature map, then LRPE. A row to a group of threads, see ops/cuda/rows.h.
#pragma once

#include "ops/cuda/elementwise.h"
#include "ops/cuda/portable.h"

namespace transnormer::ops::cuda {

using kernels::Lrpe;

// The row of LRPE's tables that belongs to a time.
TRANSNORMER_DEVICE inline std::int64_t table_row(const Lrpe& lrpe, std::int64_t time) {
  return (lrpe.first + time) % lrpe.rows;
}

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

// Calls give(i, scale * encoding of raw(0), raw(1), ..) for i below `dim`.
template <typename Group, typename Raw, typename Give>
TRANSNORMER_DEVICE void encode_row(const Group& group, Feature kind, const Lrpe& lrpe,
                                   std::int64_t time, std::int64_t dim, Raw raw, float scale,
                                   Give give) {
  const auto feature = [&](std::int64_t i) { return feature_of(kind, raw(i)); };
  if (lrpe.rotation == nullptr) {
    group.each([&](int thread) {
      for (std::int64_t i = thread; i < dim; i += group.size) {
        give(i, feature(i) * scale);
      }
    });
    return;
  }
  const float* rotation = lrpe.rotation + table_row(lrpe, time) * dim;
  const float* unit = lrpe.unit;
  const float twice =
      2 * sum_over(group, dim, [&](std::int64_t i) { return feature(i) * unit[i]; });
  group.each([&](int thread) {
    for (std::int64_t i = 2 * thread; i < dim; i += 2 * group.size) {
      const float even = (feature(i) - unit[i] * twice) * scale;
      const float odd = (feature(i + 1) - unit[i + 1] * twice) * scale;
      give(i, even * rotation[i] - odd * rotation[i + 1]);
      give(i + 1, odd * rotation[i] + even * rotation[i + 1]);
    }
  });
}

// Where only the encoded row has a gradient, not the features before LRPE.
struct NoFeatureGradient {
  TRANSNORMER_DEVICE float operator()(std::int64_t /*i*/) const { return 0; }
};

// The way back: calls give(i, gradient of raw(i)) from scale * gradient(i), that of the encoded
// row, and beside(i), what the features before LRPE have beside it. Where there is LRPE, also
// cross(pair, d(angle)) behind all else that concerns the pair. A thread calls all of them for
// pairs of its own in the end, so that they may share memory.
template <typename Group, typename Raw, typename Gradient, typename Give, typename Cross,
          typename Beside = NoFeatureGradient>
TRANSNORMER_DEVICE void encode_row_backward(const Group& group, Feature kind, const Lrpe& lrpe,
                                            std::int64_t time, std::int64_t dim, Raw raw,
                                            float scale, Gradient gradient, Give give, Cross cross,
                                            Beside beside = {}) {
  const auto feature = [&](std::int64_t i) { return feature_of(kind, raw(i)); };
  const auto slope = [&](std::int64_t i, float y) { return feature_slope(kind, raw(i), y); };
  if (lrpe.rotation == nullptr) {
    group.each([&](int thread) {
      for (std::int64_t i = thread; i < dim; i += group.size) {
        give(i, (gradient(i) * scale + beside(i)) * slope(i, feature(i)));
      }
    });
    return;
  }
  const float* rotation = lrpe.rotation + table_row(lrpe, time) * dim;
  const float* unit = lrpe.unit;
  // The gradient rotated back.
  const auto back_even = [&](std::int64_t i) {
    return (gradient(i) * rotation[i] + gradient(i + 1) * rotation[i + 1]) * scale;
  };
  const auto back_odd = [&](std::int64_t i) {
    return (gradient(i) * rotation[i - 1] - gradient(i - 1) * rotation[i]) * scale;
  };
  const float twice_gradient = 2 * sum_over(group, dim, [&](std::int64_t i) {
                                 return (i % 2 == 0 ? back_even(i) : back_odd(i)) * unit[i];
                               });
  const float twice_feature =
      2 * sum_over(group, dim, [&](std::int64_t i) { return feature(i) * unit[i]; });
  group.each([&](int thread) {
    for (std::int64_t pair = thread; pair < dim / 2; pair += group.size) {
      const std::int64_t i = 2 * pair;
      const float even = back_even(i), odd = back_odd(i + 1);
      const float f_even = feature(i), f_odd = feature(i + 1);
      const float z_even = f_even - unit[i] * twice_feature;
      const float z_odd = f_odd - unit[i + 1] * twice_feature;
      const float at_even = slope(i, f_even);
      const float at_odd = slope(i + 1, f_odd);
      give(i, (even - unit[i] * twice_gradient + beside(i)) * at_even);
      give(i + 1, (odd - unit[i + 1] * twice_gradient + beside(i + 1)) * at_odd);
      // Against the reflected input z, the gradient's component along the rotation.
      cross(pair, odd * z_even - even * z_odd);
    }
  });
}

}  // namespace transnormer::ops::cuda
