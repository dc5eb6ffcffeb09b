// Small dense fp32 products in local buffers: the arithmetic of both attentions. Columns are padded
// to a multiple of 16, so that only whole vectors occur.
#pragma once

#include "ops/kernels/simd.h"

namespace transnormer::ops::kernels::TRANSNORMER_ISA {

inline constexpr int kRows = 4;
#if defined(__AVX512F__)
inline constexpr int kVectors = 4;
#else
inline constexpr int kVectors = 2;
#endif

// A left factor: element (i, k) at data[i * row + k * column], so a transpose costs nothing.
struct Left {
  const float* data;
  std::int64_t row;
  std::int64_t column;
};

// Which half of a product is not zero by construction and has to be computed.
enum class Part {
  all,
  left_lower,   // the left factor is lower triangular: k <= i
  left_upper,   // .. upper triangular: k >= i
  result_lower  // only columns j <= i of the result are wanted
};

template <int rows, int vectors>
inline void tile(Left a, const float* b, std::int64_t ldb, float* c, std::int64_t ldc,
                 std::int64_t first, std::int64_t last, bool add) {
  F sums[rows][vectors];
  for (int r = 0; r < rows; ++r) {
    for (int v = 0; v < vectors; ++v) {
      sums[r][v] = add ? load(c + r * ldc + v * kLanes) : F{};
    }
  }
  for (std::int64_t k = first; k < last; ++k) {
    F right[vectors];
    for (int v = 0; v < vectors; ++v) {
      right[v] = load(b + k * ldb + v * kLanes);
    }
    for (int r = 0; r < rows; ++r) {
      const F left = splat(a.data[r * a.row + k * a.column]);
      for (int v = 0; v < vectors; ++v) {
        sums[r][v] += left * right[v];
      }
    }
  }
  for (int r = 0; r < rows; ++r) {
    for (int v = 0; v < vectors; ++v) {
      store(c + r * ldc + v * kLanes, sums[r][v]);
    }
  }
}

template <int rows>
inline void row_of_tiles(Left a, const float* b, std::int64_t ldb, float* c, std::int64_t ldc,
                         std::int64_t columns, std::int64_t first, std::int64_t last, bool add) {
  std::int64_t j = 0;
  for (; j + kVectors * kLanes <= columns; j += kVectors * kLanes) {
    tile<rows, kVectors>(a, b + j, ldb, c + j, ldc, first, last, add);
  }
  for (; j < columns; j += kLanes) {
    tile<rows, 1>(a, b + j, ldb, c + j, ldc, first, last, add);
  }
}

// c [m, n] = (add ? c : 0) + a [m, depth] b [depth, n]; n a multiple of kLanes.
template <Part part>
inline void product(Left a, const float* b, std::int64_t ldb, float* c, std::int64_t ldc,
                    std::int64_t m, std::int64_t n, std::int64_t depth, bool add) {
  for (std::int64_t i = 0; i < m; i += kRows) {
    const std::int64_t rows = m - i < kRows ? m - i : kRows;
    const std::int64_t first = part == Part::left_upper ? i : 0;
    const std::int64_t last = part == Part::left_lower && i + rows < depth ? i + rows : depth;
    const std::int64_t reach = (i + rows + kLanes - 1) / kLanes * kLanes;
    const std::int64_t columns = part == Part::result_lower && reach < n ? reach : n;
    const Left from{a.data + i * a.row, a.row, a.column};
    float* to = c + i * ldc;
    switch (rows) {
      case 1:
        row_of_tiles<1>(from, b, ldb, to, ldc, columns, first, last, add);
        break;
      case 2:
        row_of_tiles<2>(from, b, ldb, to, ldc, columns, first, last, add);
        break;
      case 3:
        row_of_tiles<3>(from, b, ldb, to, ldc, columns, first, last, add);
        break;
      default:
        row_of_tiles<4>(from, b, ldb, to, ldc, columns, first, last, add);
    }
  }
}

// Zeroes above the diagonal what products with left_lower and left_upper read there.
inline void clear_above_diagonal(float* x, std::int64_t stride, std::int64_t rows) {
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = i + 1; j < (i / kRows + 1) * kRows; ++j) {
      x[i * stride + j] = 0;
    }
  }
}

// to [columns, rows] = from [rows, columns]^T by blocks of 4x4; both buffers hold whole blocks.
inline void transpose(const float* from, std::int64_t from_stride, std::int64_t rows,
                      std::int64_t columns, float* to, std::int64_t to_stride) {
  using Q = float __attribute__((vector_size(16)));
  using J = std::int32_t __attribute__((vector_size(16)));
  for (std::int64_t i = 0; i < rows; i += 4) {
    for (std::int64_t j = 0; j < columns; j += 4) {
      Q r[4];
      for (int l = 0; l < 4; ++l) {
        __builtin_memcpy(&r[l], from + (i + l) * from_stride + j, sizeof(Q));
      }
      const Q a = __builtin_shuffle(r[0], r[1], J{0, 4, 1, 5});
      const Q b = __builtin_shuffle(r[0], r[1], J{2, 6, 3, 7});
      const Q c = __builtin_shuffle(r[2], r[3], J{0, 4, 1, 5});
      const Q d = __builtin_shuffle(r[2], r[3], J{2, 6, 3, 7});
      const Q out[4] = {
          __builtin_shuffle(a, c, J{0, 1, 4, 5}), __builtin_shuffle(a, c, J{2, 3, 6, 7}),
          __builtin_shuffle(b, d, J{0, 1, 4, 5}), __builtin_shuffle(b, d, J{2, 3, 6, 7})};
      for (int l = 0; l < 4; ++l) {
        __builtin_memcpy(to + (j + l) * to_stride + i, &out[l], sizeof(Q));
      }
    }
  }
}

// Rows of one head (stride apart) times `scale` to a buffer [rows, padded(dim)].
template <typename T>
inline void pack(const T* from, std::int64_t stride, std::int64_t rows, std::int64_t dim,
                 float scale, float* to) {
  const std::int64_t width = padded(dim);
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < dim; j += kLanes) {
      store(to + i * width + j, load(from + i * stride + j, dim - j) * scale);
    }
  }
}

template <typename T>
inline void unpack(const float* from, std::int64_t rows, std::int64_t dim, float scale, T* to,
                   std::int64_t stride) {
  const std::int64_t width = padded(dim);
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < dim; j += kLanes) {
      store(to + i * stride + j, load(from + i * width + j) * scale, dim - j);
    }
  }
}

}  // namespace transnormer::ops::kernels::TRANSNORMER_ISA
