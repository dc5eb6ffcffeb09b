#include "ops/kernels/functions.h"
#include "ops/kernels/simd.h"

namespace transnormer::ops::kernels::TRANSNORMER_ISA {
namespace {

template <typename T>
float along(const T* x, const float* unit, std::int64_t dim) {
  F sums{};
  for (std::int64_t i = 0; i < dim; i += kLanes) {
    sums += load(x + i, dim - i) * load(unit + i, dim - i);
  }
  return sum(sums);
}

template <typename T>
void forward(const LrpeRows& rows, const T* x, T* y) {
  const std::int64_t dim = rows.dim;
  for (std::int64_t row = rows.first; row < rows.last; ++row) {
    const float* cosine = rows.cosine + row % rows.time * dim;
    const float* sine = rows.sine + row % rows.time * dim;
    for (std::int64_t head = 0; head < rows.heads; ++head) {
      const std::int64_t at = (row * rows.heads + head) * dim;
      const float twice = 2 * along(x + at, rows.unit, dim);
      for (std::int64_t i = 0; i < dim; i += kLanes) {
        const std::int64_t n = dim - i;
        const F z = load(x + at + i, n) - load(rows.unit + i, n) * twice;
        store(y + at + i, z * load(cosine + i, n) + swap_pairs(z) * load(sine + i, n), n);
      }
    }
  }
}

// Turned back, the gradient g meets the reflected input z: d(angle) = g_odd z_even - g_even z_odd.
template <typename T>
void backward(const LrpeRows& rows, const T* x, const T* d_y, T* d_x, double* d_theta,
              float* turned, float* crossed) {
  const std::int64_t dim = rows.dim;
  for (std::int64_t row = rows.first; row < rows.last; ++row) {
    const float* cosine = rows.cosine + row % rows.time * dim;
    const float* sine = rows.sine + row % rows.time * dim;
    for (std::int64_t i = 0; i < padded(dim); i += kLanes) {
      store(crossed + i, F{});
    }
    for (std::int64_t head = 0; head < rows.heads; ++head) {
      const std::int64_t at = (row * rows.heads + head) * dim;
      const float twice_x = 2 * along(x + at, rows.unit, dim);
      for (std::int64_t i = 0; i < dim; i += kLanes) {
        const std::int64_t n = dim - i;
        const F given = load(d_y + at + i, n);
        const F g = given * load(cosine + i, n) - swap_pairs(given) * load(sine + i, n);
        const F z = load(x + at + i, n) - load(rows.unit + i, n) * twice_x;
        store(turned + i, g);
        store(crossed + i, load(crossed + i) + g * swap_pairs(z));
      }
      const float twice_g = 2 * along(turned, rows.unit, dim);
      for (std::int64_t i = 0; i < dim; i += kLanes) {
        const std::int64_t n = dim - i;
        store(d_x + at + i, load(turned + i) - load(rows.unit + i, n) * twice_g, n);
      }
    }
    const double position = rows.position[row % rows.time];
    for (std::int64_t i = 0; i < dim / 2; ++i) {
      d_theta[i] += position *
                    (static_cast<double>(crossed[2 * i + 1]) - static_cast<double>(crossed[2 * i]));
    }
  }
}

}  // namespace

void lrpe(const LrpeRows& rows, In x, Out y) {
  by_type(x.type, [&](auto* t) { forward(rows, as(x, t), as(y, t)); });
}

void lrpe_backward(const LrpeRows& rows, In x, In d_y, Out d_x, double* d_theta) {
  alignas(64) float turned[kWidestLrpe];
  alignas(64) float crossed[kWidestLrpe];
  by_type(x.type, [&](auto* t) {
    backward(rows, as(x, t), as(d_y, t), as(d_x, t), d_theta, turned, crossed);
  });
}

}  // namespace transnormer::ops::kernels::TRANSNORMER_ISA
