// The residual stream's sum with what dropout leaves of a branch, and the norm of the sum.
#include "ops/kernels/functions.h"
#include "ops/kernels/philox.h"
#include "ops/kernels/rms.h"

namespace transnormer::ops::kernels::TRANSNORMER_ISA {
namespace {

// Calls body(place, count, mask of `count` elements) along a row; the mask is null where none is
// wanted.
template <typename Body>
void for_row(const Residual& r, std::int64_t row, bool with_mask, Body body) {
  if (!r.drops || !with_mask) {
    body(std::int64_t{0}, r.dim, static_cast<const float*>(nullptr));
    return;
  }
  Mask m = r.mask;
  m.sample += static_cast<std::uint64_t>(row / r.rows_per_sample);
  m.first += static_cast<std::uint64_t>(row % r.rows_per_sample * r.dim);
  for_mask_tiles(m, r.dim, [&](std::int64_t place, const float* mask, std::int64_t n) {
    body(place, n, mask);
  });
}

F masked(F x, const float* mask, std::int64_t place, std::int64_t count) {
  return mask == nullptr ? x : x * load(mask + place, count);
}

template <typename T>
void forward(const Residual& r, const float* xs, const T* ys, float* sums, T* norms) {
  for (std::int64_t row = r.first; row < r.last; ++row) {
    const float* x = xs + row * r.dim;
    const T* y = ys + row * r.dim;
    float* to = sums + row * r.dim;
    F squares{};
    for_row(r, row, true, [&](std::int64_t place, std::int64_t count, const float* mask) {
      for (std::int64_t i = 0; i < count; i += kLanes) {
        const std::int64_t n = count - i;
        const F s = load(x + place + i, n) + masked(load(y + place + i, n), mask, i, n);
        store(to + place + i, s, n);
        squares += s * s;
      }
    });
    if (norms != nullptr) {
      T* normed = norms + row * r.dim;
      const float scale = inverse_rms(sum(squares), r.dim, r.eps);
      for (std::int64_t i = 0; i < r.dim; i += kLanes) {
        store(normed + i, load(to + i, r.dim - i) * scale, r.dim - i);
      }
    }
  }
}

template <typename T>
NormSlope slope_of(const Residual& r, const float* s, const T* g) {
  F squares{};
  F products{};
  for (std::int64_t i = 0; i < r.dim; i += kLanes) {
    const F v = load(s + i, r.dim - i);
    squares += v * v;
    products += v * load(g + i, r.dim - i);
  }
  return norm_slope(sum(squares), sum(products), r.dim, r.eps);
}

template <bool normed, typename T>
void backward(const Residual& r, const float* sums, const float* d_sums, const T* d_norms,
              float* d_xs, T* d_ys) {
  for (std::int64_t row = r.first; row < r.last; ++row) {
    const std::int64_t at = row * r.dim;
    NormSlope slope{};
    if constexpr (normed) {
      slope = slope_of(r, sums + at, d_norms + at);
    }
    const auto gradient = [&](std::int64_t i, std::int64_t n) {
      const F along_stream = d_sums == nullptr ? F{} : load(d_sums + i, n);
      if constexpr (normed) {
        return along_stream + slope.through(load(d_norms + i, n), load(sums + i, n));
      } else {
        return along_stream;
      }
    };
    for_row(r, row, d_ys != nullptr,
            [&](std::int64_t place, std::int64_t count, const float* mask) {
              for (std::int64_t i = 0; i < count; i += kLanes) {
                const std::int64_t n = count - i;
                const F g = gradient(at + place + i, n);
                if (d_xs != nullptr) {
                  store(d_xs + at + place + i, g, n);
                }
                if (d_ys != nullptr) {
                  store(d_ys + at + place + i, masked(g, mask, i, n), n);
                }
              }
            });
  }
}

}  // namespace

void residual(const Residual& r, In x, In y, Out sum, Out normed) {
  by_type(y.type, [&](auto* t) {
    forward(r, static_cast<const float*>(x.data), as(y, t), static_cast<float*>(sum.data),
            as(normed, t));
  });
}

void residual_backward(const Residual& r, In sum, In d_sum, In d_normed, Out d_x, Out d_y) {
  by_type(d_normed.data == nullptr ? d_y.type : d_normed.type, [&](auto* t) {
    const auto* sums = static_cast<const float*>(sum.data);
    const auto* d_sums = static_cast<const float*>(d_sum.data);
    auto* d_xs = static_cast<float*>(d_x.data);
    if (d_normed.data == nullptr) {
      backward<false>(r, sums, d_sums, as(d_normed, t), d_xs, as(d_y, t));
    } else {
      backward<true>(r, sums, d_sums, as(d_normed, t), d_xs, as(d_y, t));
    }
  });
}

}  // namespace transnormer::ops::kernels::TRANSNORMER_ISA
