// Element-wise functions and the norm of rows: one pass over memory each.
#include "ops/kernels/feature.h"
#include "ops/kernels/functions.h"
#include "ops/kernels/rms.h"
#include "ops/kernels/simd.h"

namespace transnormer::ops::kernels::TRANSNORMER_ISA {
namespace {

template <typename Act, typename T>
void gated_of(const T* gate, T* out, const GatedRows& all) {
  for (std::int64_t row = 0; row < all.rows;
       ++row, gate += all.gate_up_step(), out += all.out_step()) {
    const T* up = gate + all.width;
    for (std::int64_t i = 0; i < all.width; i += kLanes) {
      const std::int64_t n = all.width - i;
      store(out + i, Act::template value<Vectors>(load(gate + i, n)) * load(up + i, n), n);
    }
  }
}

template <typename Act, typename T>
void gated_backward_of(const T* gate, const T* d_out, T* d_gate, const GatedRows& all) {
  for (std::int64_t row = 0; row < all.rows;
       ++row, gate += all.gate_up_step(), d_gate += all.gate_up_step(), d_out += all.out_step()) {
    const T* up = gate + all.width;
    T* d_up = d_gate + all.width;
    for (std::int64_t i = 0; i < all.width; i += kLanes) {
      const std::int64_t n = all.width - i;
      const F x = load(gate + i, n);
      const F g = load(d_out + i, n);
      const F y = Act::template value<Vectors>(x);
      store(d_gate + i, g * load(up + i, n) * Act::template slope<Vectors>(x, y), n);
      store(d_up + i, g * y, n);
    }
  }
}

// Of a row: the sum of squares of x and, where given, the sum of x * y.
struct RowSums {
  float squares;
  float products;
};

template <typename X, typename Y>
RowSums row_sums(const X* x, const Y* y, std::int64_t dim) {
  F squares[2] = {};
  F products[2] = {};
  // Each side in registers: two neighbouring vectors a turn.
  const auto add = [&](int side, std::int64_t i) {
    const F v = load(x + i, dim - i);
    squares[side] += v * v;
    if (y != nullptr) {
      products[side] += v * load(y + i, dim - i);
    }
  };
  for (std::int64_t i = 0; i < dim; i += 2 * kLanes) {
    add(0, i);
    if (i + kLanes < dim) {
      add(1, i + kLanes);
    }
  }
  return {sum(squares[0] + squares[1]), sum(products[0] + products[1])};
}

template <typename X, typename Y>
void srms_of(const X* x, Y* y, std::int64_t rows, std::int64_t dim, float eps) {
  for (std::int64_t row = 0; row < rows; ++row, x += dim, y += dim) {
    const float r = inverse_rms(row_sums<X, X>(x, nullptr, dim).squares, dim, eps);
    for (std::int64_t i = 0; i < dim; i += kLanes) {
      store(y + i, load(x + i, dim - i) * r, dim - i);
    }
  }
}

template <typename X, typename Y>
void srms_backward_of(const X* x, const Y* d_y, X* d_x, std::int64_t rows, std::int64_t dim,
                      float eps) {
  for (std::int64_t row = 0; row < rows; ++row, x += dim, d_y += dim, d_x += dim) {
    const RowSums sums = row_sums(x, d_y, dim);
    const NormSlope slope = norm_slope(sums.squares, sums.products, dim, eps);
    for (std::int64_t i = 0; i < dim; i += kLanes) {
      const std::int64_t n = dim - i;
      store(d_x + i, slope.through(load(d_y + i, n), load(x + i, n)), n);
    }
  }
}

}  // namespace

void gated(Gate kind, In gate_up, Out out, const GatedRows& all) {
  by_type(gate_up.type, [&](auto* t) {
    by_gate(kind, [&]<typename Act>() { gated_of<Act>(as(gate_up, t), as(out, t), all); });
  });
}

void gated_backward(Gate kind, In gate_up, In d_out, Out d_gate_up, const GatedRows& all) {
  by_type(gate_up.type, [&](auto* t) {
    by_gate(kind, [&]<typename Act>() {
      gated_backward_of<Act>(as(gate_up, t), as(d_out, t), as(d_gate_up, t), all);
    });
  });
}

void feature(Feature kind, In x, Out y, std::int64_t count) {
  by_type(x.type, [&](auto* t) {
    by_feature(kind, [&]<typename Phi>() {
      const auto* from = as(x, t);
      auto* to = as(y, t);
      for (std::int64_t i = 0; i < count; i += kLanes) {
        store(to + i, Phi::template value<Vectors>(load(from + i, count - i)), count - i);
      }
    });
  });
}

void feature_backward(Feature kind, In x, In d_y, Out d_x, std::int64_t count) {
  by_type(x.type, [&](auto* t) {
    by_feature(kind, [&]<typename Phi>() {
      const auto* from = as(x, t);
      const auto* gradient = as(d_y, t);
      auto* to = as(d_x, t);
      for (std::int64_t i = 0; i < count; i += kLanes) {
        const F v = load(from + i, count - i);
        const F y = Phi::template value<Vectors>(v);
        const F g = load(gradient + i, count - i);
        store(to + i, g * Phi::template slope<Vectors>(v, y), count - i);
      }
    });
  });
}

void srms_norm(In x, Out y, std::int64_t rows, std::int64_t dim, float eps) {
  by_type(x.type, [&](auto* t) {
    by_type(y.type, [&](auto* u) { srms_of(as(x, t), as(y, u), rows, dim, eps); });
  });
}

void add_column_sums(In x, float* sums, std::int64_t rows, std::int64_t columns, std::int64_t first,
                     std::int64_t last) {
  constexpr int vectors = 4;  // of columns at once, so that whole cache lines are read
  constexpr std::int64_t group_rows =
      64;  // summed by themselves, so that long sums keep their bits
  by_type(x.type, [&](auto* t) {
    const auto* from = as(x, t);
    for (std::int64_t i = first; i < last; i += vectors * kLanes) {
      F total[vectors] = {};
      for (std::int64_t group = 0; group < rows; group += group_rows) {
        const std::int64_t end = group + group_rows < rows ? group + group_rows : rows;
        F part[vectors] = {};
        for (std::int64_t row = group; row < end; ++row) {
          for (int v = 0; v < vectors && i + v * kLanes < last; ++v) {
            part[v] += load(from + row * columns + i + v * kLanes, last - i - v * kLanes);
          }
        }
        for (int v = 0; v < vectors; ++v) {
          total[v] += part[v];
        }
      }
      for (int v = 0; v < vectors && i + v * kLanes < last; ++v) {
        const std::int64_t n = last - i - v * kLanes;
        store(sums + i + v * kLanes, load(sums + i + v * kLanes, n) + total[v], n);
      }
    }
  });
}

void accumulate(In x, float* sum, std::int64_t count) {
  by_type(x.type, [&](auto* t) {
    const auto* from = as(x, t);
    for (std::int64_t i = 0; i < count; i += kLanes) {
      store(sum + i, load(sum + i, count - i) + load(from + i, count - i), count - i);
    }
  });
}

void srms_norm_backward(In x, In d_y, Out d_x, std::int64_t rows, std::int64_t dim, float eps) {
  by_type(x.type, [&](auto* t) {
    by_type(d_y.type,
            [&](auto* u) { srms_backward_of(as(x, t), as(d_y, u), as(d_x, t), rows, dim, eps); });
  });
}

}  // namespace transnormer::ops::kernels::TRANSNORMER_ISA
