// Rows of one head between a tensor and a kernel's local buffers, encoded on the way: queries and
// keys by a feature and LRPE, whose gradients are taken on the way back.
#pragma once

#include "ops/kernels/feature.h"
#include "ops/kernels/simd.h"

namespace transnormer::ops::kernels::TRANSNORMER_ISA {

// `stride` elements from a row to the next.
template <typename T>
struct Rows {
  T* data;
  std::int64_t stride;

  [[nodiscard]] T* row(std::int64_t i) const { return data + i * stride; }
};

// A tensor [batch, time, heads, dim] whose rows of all heads are `stride` elements apart.
template <typename T>
struct Heads {
  T* data;
  std::int64_t stride;
  std::int64_t times;
  std::int64_t dim;

  Heads() = default;
  // stride: 0 where the tensor is dense.
  Heads(T* first, std::int64_t stride_or_0, std::int64_t time, std::int64_t heads,
        std::int64_t width)
      : data(first),
        stride(stride_or_0 != 0 ? stride_or_0 : heads * width),
        times(time),
        dim(width) {}

  [[nodiscard]] Rows<T> rows(std::int64_t batch, std::int64_t head, std::int64_t time) const {
    return {data + (batch * times + time) * stride + head * dim, stride};
  }
};

// Which rows of a head: of times [time, time + count), dim wide.
struct Span {
  std::int64_t time;
  std::int64_t count;
  std::int64_t dim;
};

// Walks the rows of LRPE's tables.
class TableRow {
 public:
  TableRow(const Lrpe& lrpe, std::int64_t time)
      : row_((lrpe.first + time) % lrpe.rows), rows_(lrpe.rows) {}
  [[nodiscard]] std::int64_t get() const { return row_; }
  void next() { row_ = row_ + 1 == rows_ ? 0 : row_ + 1; }

 private:
  std::int64_t row_;
  std::int64_t rows_;
};

// (x_even, x_odd) -> (-x_odd, x_even): a quarter turn of each pair.
inline F quarter_turn(F x) {
  const I odd = iota() & 1;
  return reinterpret_cast<F>(reinterpret_cast<I>(swap_pairs(x)) ^ ((odd - 1) << 31));
}

inline F cosines(F rotation) {
  return __builtin_shuffle(rotation, iota() & ~1);
}
inline F sines(F rotation) {
  return __builtin_shuffle(rotation, iota() | 1);
}

template <typename Phi, typename X, typename Y>
inline void feature_rows(Span s, Rows<const X> from, float scale, Rows<Y> to) {
  for (std::int64_t row = 0; row < s.count; ++row) {
    const X* x = from.row(row);
    Y* y = to.row(row);
    for (std::int64_t i = 0; i < s.dim; i += kLanes) {
      store(y + i, Phi::template value<Vectors>(load(x + i, s.dim - i)) * scale, s.dim - i);
    }
  }
}

// A row as vectors: `whole` of them exactly, so that loops over them unroll, or, where that is 0,
// as many as a row of dim takes.
template <int whole>
struct RowOf {
  static constexpr bool exact = whole > 0;
  F v[exact ? whole : kWidestLrpe / kLanes];

  static std::int64_t count(std::int64_t dim) {
    return exact ? whole : (dim + kLanes - 1) / kLanes;
  }
  // The elements from vector i on.
  static std::int64_t rest(std::int64_t dim, std::int64_t i) {
    return exact ? kLanes : dim - i * kLanes;
  }
};

// Rows are worked on some at a time, step by step, so that a processor need not wait for the long
// chain of operations that each is.
inline constexpr std::int64_t kTogether = 4;

template <int whole, typename Phi, typename X, typename Y>
inline void rotate_rows(const Lrpe& lrpe, Span s, Rows<const X> from, float scale, Rows<Y> to) {
  using Row = RowOf<whole>;
  Row feature[kTogether];
  float twice[kTogether];
  TableRow at(lrpe, s.time);
  for (std::int64_t row = 0; row < s.count; row += kTogether) {
    const std::int64_t rows = s.count - row < kTogether ? s.count - row : kTogether;
    for (std::int64_t r = 0; r < rows; ++r) {
      const X* x = from.row(row + r);
      F along{};
      for (std::int64_t i = 0; i < Row::count(s.dim); ++i) {
        const std::int64_t n = Row::rest(s.dim, i);
        const F f = Phi::template value<Vectors>(load(x + i * kLanes, n));
        feature[r].v[i] = f;
        along += f * load(lrpe.unit + i * kLanes, n);
      }
      twice[r] = 2 * sum(along);
    }
    for (std::int64_t r = 0; r < rows; ++r, at.next()) {
      Y* y = to.row(row + r);
      const float* rotation = lrpe.rotation + at.get() * s.dim;
      for (std::int64_t i = 0; i < Row::count(s.dim); ++i) {
        const std::int64_t n = Row::rest(s.dim, i);
        const F z = (feature[r].v[i] - load(lrpe.unit + i * kLanes, n) * twice[r]) * scale;
        const F angle = load(rotation + i * kLanes, n);
        store(y + i * kLanes, z * cosines(angle) + quarter_turn(z) * sines(angle), n);
      }
    }
  }
}

template <typename Phi, typename X, typename G, typename D>
inline void feature_rows_backward(Span s, Rows<const X> x, Rows<const G> gradient, float scale,
                                  Rows<D> d_x) {
  for (std::int64_t row = 0; row < s.count; ++row) {
    for (std::int64_t i = 0; i < s.dim; i += kLanes) {
      const std::int64_t n = s.dim - i;
      F g = load(gradient.row(row) + i, n) * scale;
      if constexpr (!Phi::is_identity) {
        const F v = load(x.row(row) + i, n);
        g *= Phi::template slope<Vectors>(v, Phi::template value<Vectors>(v));
      }
      store(d_x.row(row) + i, g, n);
    }
  }
}

// Rotated back, the gradient g meets the reflected input z: d(angle) = g_odd z_even - g_even z_odd,
// and the angle is position * theta. Positions are counted from the first row's, so that their
// products with d(angle) can be summed in single precision over one call's few rows.
template <int whole, typename Phi, typename X, typename G, typename D>
inline void rotate_rows_backward(const Lrpe& lrpe, Span s, Rows<const X> x, Rows<const G> gradient,
                                 float scale, Rows<D> d_x, double* d_theta) {
  using Row = RowOf<whole>;
  Row feature[kTogether];
  Row back[kTogether];
  float twice_feature[kTogether];
  float twice_gradient[kTogether];
  float offset[kTogether];
  Row sums;
  Row moments;
  for (std::int64_t i = 0; i < Row::count(s.dim); ++i) {
    sums.v[i] = moments.v[i] = F{};
  }
  TableRow at(lrpe, s.time);
  const double base = lrpe.position[at.get()];
  for (std::int64_t row = 0; row < s.count; row += kTogether) {
    const std::int64_t rows = s.count - row < kTogether ? s.count - row : kTogether;
    for (std::int64_t r = 0; r < rows; ++r, at.next()) {
      const float* rotation = lrpe.rotation + at.get() * s.dim;
      offset[r] = static_cast<float>(lrpe.position[at.get()] - base);
      F along_feature{};
      F along_gradient{};
      for (std::int64_t i = 0; i < Row::count(s.dim); ++i) {
        const std::int64_t n = Row::rest(s.dim, i);
        const F angle = load(rotation + i * kLanes, n);
        const F unit = load(lrpe.unit + i * kLanes, n);
        const F given = load(gradient.row(row + r) + i * kLanes, n) * scale;
        const F g = given * cosines(angle) - quarter_turn(given) * sines(angle);
        const F f = Phi::template value<Vectors>(load(x.row(row + r) + i * kLanes, n));
        back[r].v[i] = g;
        feature[r].v[i] = f;
        along_gradient += g * unit;
        along_feature += f * unit;
      }
      twice_gradient[r] = 2 * sum(along_gradient);
      twice_feature[r] = 2 * sum(along_feature);
    }
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t i = 0; i < Row::count(s.dim); ++i) {
        const std::int64_t n = Row::rest(s.dim, i);
        const F unit = load(lrpe.unit + i * kLanes, n);
        const F g = back[r].v[i];
        const F f = feature[r].v[i];
        const F crossed = g * swap_pairs(f - unit * twice_feature[r]);
        sums.v[i] += crossed;
        moments.v[i] += crossed * offset[r];
        F d = g - unit * twice_gradient[r];
        if constexpr (!Phi::is_identity) {
          d *= Phi::template slope<Vectors>(load(x.row(row + r) + i * kLanes, n), f);
        }
        store(d_x.row(row + r) + i * kLanes, d, n);
      }
    }
  }
  for (std::int64_t i = 0; i < s.dim / 2; ++i) {
    const auto difference = [i](const Row& of) {
      const F& pairs = of.v[2 * i / kLanes];
      const std::int64_t even = 2 * i % kLanes;
      return static_cast<double>(pairs[even + 1]) - static_cast<double>(pairs[even]);
    };
    d_theta[i] += base * difference(sums) + difference(moments);
  }
}

// Calls body<whole>() for rows of this width.
template <typename Body>
inline void by_width(std::int64_t dim, Body body) {
  constexpr int usual = 64 / kLanes;
  if (dim == 64) {
    body.template operator()<usual>();
  } else {
    body.template operator()<0>();
  }
}

// to = scale * encoding(from).
template <typename X, typename Y>
inline void encode(Feature feature, const Lrpe& lrpe, Span s, Rows<const X> from, float scale,
                   Rows<Y> to) {
  by_feature(feature, [&]<typename Phi>() {
    if (lrpe.rotation == nullptr) {
      feature_rows<Phi>(s, from, scale, to);
    } else {
      by_width(s.dim, [&]<int whole>() { rotate_rows<whole, Phi>(lrpe, s, from, scale, to); });
    }
  });
}

// d_x from scale * gradient with respect to the encoded rows; adds to d_theta [dim / 2].
template <typename X, typename G, typename D>
inline void encode_backward(Feature feature, const Lrpe& lrpe, Span s, Rows<const X> x,
                            Rows<const G> gradient, float scale, Rows<D> d_x, double* d_theta) {
  by_feature(feature, [&]<typename Phi>() {
    if (lrpe.rotation == nullptr) {
      feature_rows_backward<Phi>(s, x, gradient, scale, d_x);
    } else {
      by_width(s.dim, [&]<int whole>() {
        rotate_rows_backward<whole, Phi>(lrpe, s, x, gradient, scale, d_x, d_theta);
      });
    }
  });
}

// Into a buffer of rows padded(dim) wide, zeros in the padding.
template <typename T>
inline void pack(Feature feature, const Lrpe& lrpe, Span s, Rows<const T> from, float scale,
                 float* to) {
  const std::int64_t width = padded(s.dim);
  encode(feature, lrpe, s, from, scale, Rows<float>{to, width});
  for (std::int64_t row = 0; row < s.count; ++row) {
    for (std::int64_t i = s.dim; i < width; ++i) {
      to[row * width + i] = 0;
    }
  }
}

template <typename T>
inline void pack(Span s, Rows<const T> from, float* to) {
  pack(Feature::none, Lrpe{}, s, from, 1, to);
}

// From a buffer of rows padded(dim) wide.
template <typename T>
inline void unpack(Span s, const float* from, Rows<T> to) {
  feature_rows<Identity>(s, Rows<const float>{from, padded(s.dim)}, 1, to);
}

}  // namespace transnormer::ops::kernels::TRANSNORMER_ISA
