// Small dense fp32 products in local buffers: the arithmetic of both attentions. Columns are padded
// to a multiple of 16, so that only whole vectors occur.
#pragma once

#include "ops/kernels/simd.h"

namespace transnormer::ops::kernels::TRANSNORMER_ISA {

// A tile's sums, the vectors of the right factor and a splat of the left one fill the registers.
inline constexpr int kRows = 6;
#if defined(__AVX512F__)
inline constexpr int kVectors = 4;
#else
inline constexpr int kVectors = 2;
#endif

// A left factor: element (i, k) at data[i * stride + k] or, of a transpose, data[k * stride + i].
struct Left {
  const float* data;
  std::int64_t stride;

  [[nodiscard]] Left from_row(std::int64_t i) const { return {data + i * stride, stride}; }
  [[nodiscard]] float at(std::int64_t i, std::int64_t k) const { return data[i * stride + k]; }
};
struct Transposed {
  const float* data;
  std::int64_t stride;

  [[nodiscard]] Transposed from_row(std::int64_t i) const { return {data + i, stride}; }
  [[nodiscard]] float at(std::int64_t i, std::int64_t k) const { return data[k * stride + i]; }
};

// Which half of a product is not zero by construction and has to be computed.
enum class Part {
  all,
  left_lower,   // the left factor is lower triangular: k <= i
  left_upper,   // .. upper triangular: k >= i
  result_lower  // only columns j <= i of the result are wanted
};

template <int rows, int vectors, typename A>
inline void tile(A a, const float* b, std::int64_t ldb, float* c, std::int64_t ldc,
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
      const F left = splat(a.at(r, k));
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

template <int rows, typename A>
inline void row_of_tiles(A a, const float* b, std::int64_t ldb, float* c, std::int64_t ldc,
                         std::int64_t columns, std::int64_t first, std::int64_t last, bool add) {
  std::int64_t j = 0;
  for (; j + kVectors * kLanes <= columns; j += kVectors * kLanes) {
    tile<rows, kVectors>(a, b + j, ldb, c + j, ldc, first, last, add);
  }
  if constexpr (kVectors > 2) {
    if (j + 3 * kLanes <= columns) {
      tile<rows, 3>(a, b + j, ldb, c + j, ldc, first, last, add);
      j += 3 * kLanes;
    } else if (j + 2 * kLanes <= columns) {
      tile<rows, 2>(a, b + j, ldb, c + j, ldc, first, last, add);
      j += 2 * kLanes;
    }
  }
  if (j < columns) {
    tile<rows, 1>(a, b + j, ldb, c + j, ldc, first, last, add);
  }
}

template <int rows, typename A>
inline void last_row_of_tiles(std::int64_t count, A a, const float* b, std::int64_t ldb, float* c,
                              std::int64_t ldc, std::int64_t columns, std::int64_t first,
                              std::int64_t last, bool add) {
  if (count == rows) {
    row_of_tiles<rows>(a, b, ldb, c, ldc, columns, first, last, add);
  } else if constexpr (rows > 1) {
    last_row_of_tiles<rows - 1>(count, a, b, ldb, c, ldc, columns, first, last, add);
  }
}

// c [m, n] = (add ? c : 0) + a [m, depth] b [depth, n]; n a multiple of kLanes.
template <Part part, typename A>
inline void product(A a, const float* b, std::int64_t ldb, float* c, std::int64_t ldc,
                    std::int64_t m, std::int64_t n, std::int64_t depth, bool add) {
  for (std::int64_t i = 0; i < m; i += kRows) {
    const std::int64_t rows = m - i < kRows ? m - i : kRows;
    const std::int64_t first = part == Part::left_upper ? i : 0;
    const std::int64_t last = part == Part::left_lower && i + rows < depth ? i + rows : depth;
    const std::int64_t reach = (i + rows + kLanes - 1) / kLanes * kLanes;
    const std::int64_t columns = part == Part::result_lower && reach < n ? reach : n;
    last_row_of_tiles<kRows>(rows, a.from_row(i), b, ldb, c + i * ldc, ldc, columns, first, last,
                             add);
  }
}

// Zeroes above the diagonal what products with left_lower and left_upper read there.
inline void clear_above_diagonal(float* x, std::int64_t stride, std::int64_t rows) {
  for (std::int64_t first = 0; first < rows; first += kRows) {
    const std::int64_t end = rows - first < kRows ? rows : first + kRows;
    for (std::int64_t i = first; i < end; ++i) {
      for (std::int64_t j = i + 1; j < end; ++j) {
        x[i * stride + j] = 0;
      }
    }
  }
}

// Four numbers of each of kLanes / 4 rows that are 4 * stride apart.
inline F load_quads(const float* p, std::int64_t stride) {
#if defined(__AVX512F__)
  __m512 v = _mm512_castps128_ps512(_mm_loadu_ps(p));
  v = _mm512_insertf32x4(v, _mm_loadu_ps(p + 4 * stride), 1);
  v = _mm512_insertf32x4(v, _mm_loadu_ps(p + 8 * stride), 2);
  return reinterpret_cast<F>(_mm512_insertf32x4(v, _mm_loadu_ps(p + 12 * stride), 3));
#elif defined(__AVX2__)
  const __m256 v = _mm256_castps128_ps256(_mm_loadu_ps(p));
  return reinterpret_cast<F>(_mm256_insertf128_ps(v, _mm_loadu_ps(p + 4 * stride), 1));
#else
  static_cast<void>(stride);
  return load(p);
#endif
}

// to [columns, rows] = from [rows, columns]^T; both buffers hold rows by whole vectors and columns
// by fours, so that what lies behind the edge of one comes to lie behind that of the other.
inline void transpose(const float* from, std::int64_t from_stride, std::int64_t rows,
                      std::int64_t columns, float* to, std::int64_t to_stride) {
  const I lane = iota();
  const I quad = lane & ~3;
  const I low = quad + ((lane & 3) >> 1) + (lane & 1) * kLanes;  // 0 0' 1 1' of each quad
  const I high = low + 2;
  const I first = quad + (lane & 1) + ((lane & 2) >> 1) * kLanes;  // 0 1 0' 1'
  const I second = first + 2;
  for (std::int64_t i = 0; i < rows; i += kLanes) {
    for (std::int64_t j = 0; j < columns; j += 4) {
      F in[4];
      for (int r = 0; r < 4; ++r) {
        in[r] = load_quads(from + (i + r) * from_stride + j, from_stride);
      }
      const F a = __builtin_shuffle(in[0], in[1], low), b = __builtin_shuffle(in[0], in[1], high);
      const F c = __builtin_shuffle(in[2], in[3], low), d = __builtin_shuffle(in[2], in[3], high);
      store(to + (j + 0) * to_stride + i, __builtin_shuffle(a, c, first));
      store(to + (j + 1) * to_stride + i, __builtin_shuffle(a, c, second));
      store(to + (j + 2) * to_stride + i, __builtin_shuffle(b, d, first));
      store(to + (j + 3) * to_stride + i, __builtin_shuffle(b, d, second));
    }
  }
}

}  // namespace transnormer::ops::kernels::TRANSNORMER_ISA
