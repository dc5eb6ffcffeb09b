// Matrices of a block of threads, in the memory that its threads share: the arithmetic of both
// attentions. Single precision throughout.
#pragma once

#include "ops/cuda/portable.h"

namespace transnormer::ops::cuda {

inline constexpr int kTileThreads = 256;  // in 16 rows and 16 columns
inline constexpr int kTileSide = 64;      // of what they compute at once, 4 x 4 each

// A matrix in shared memory; its rows are an odd number of floats apart, so that the threads of
// a warp find the elements of a column in different banks.
struct Tile {
  float* data;
  int stride;

  [[nodiscard]] TRANSNORMER_DEVICE float& at(int row, int column) const {
    return data[row * stride + column];
  }
};

TRANSNORMER_BOTH constexpr std::int64_t tile_stride(std::int64_t columns) {
  return columns | 1;
}
TRANSNORMER_BOTH constexpr std::int64_t tile_floats(std::int64_t rows, std::int64_t columns) {
  return rows * tile_stride(columns);
}

// Hands out the shared memory of a block.
class Tiles {
 public:
  TRANSNORMER_DEVICE explicit Tiles(float* shared) : next_(shared) {}

  TRANSNORMER_DEVICE Tile take(std::int64_t rows, std::int64_t columns) {
    const Tile tile{next_, static_cast<int>(tile_stride(columns))};
    next_ += tile_floats(rows, columns);
    return tile;
  }

 private:
  float* next_;
};

// Calls body(row, column) for every element of a matrix, shared out over the threads.
template <typename Block, typename Body>
TRANSNORMER_DEVICE void for_elements(const Block& block, int rows, int columns, Body body) {
  block.each([&](int thread) {
    for (int i = thread; i < rows * columns; i += block.size) {
      body(i / columns, i % columns);
    }
  });
}

// One summand of a product: the sum over k below `depth` of left(i, k) * right(k, j).
template <typename Left, typename Right>
struct Term {
  int depth;
  Left left;
  Right right;
};
template <typename Left, typename Right>
Term(int, Left, Right) -> Term<Left, Right>;

template <typename Left, typename Right>
TRANSNORMER_DEVICE void add_term(float (&sums)[4][4], const int (&rows)[4], const int (&columns)[4],
                                 const Term<Left, Right>& term) {
  for (int k = 0; k < term.depth; ++k) {
    float left[4], right[4];
    TRANSNORMER_UNROLL
    for (int r = 0; r < 4; ++r) {
      left[r] = term.left(rows[r], k);
      right[r] = term.right(k, columns[r]);
    }
    TRANSNORMER_UNROLL
    for (int r = 0; r < 4; ++r) {
      TRANSNORMER_UNROLL
      for (int c = 0; c < 4; ++c) {
        sums[r][c] += left[r] * right[c];
      }
    }
  }
}

// Calls give(i, j, sum of the terms) for all i below `m` and j below `n`. What `give` writes must
// not be what a term reads. A block of kTileThreads.
template <typename Block, typename Give, typename... Terms>
TRANSNORMER_DEVICE void product(const Block& block, int m, int n, Give give,
                                const Terms&... terms) {
  block.each([&](int thread) {
    for (int top = thread / 16; top < m; top += kTileSide) {
      for (int left = thread % 16; left < n; left += kTileSide) {
        int rows[4], columns[4];
        TRANSNORMER_UNROLL
        for (int r = 0; r < 4; ++r) {  // those past the end repeat the last and are thrown away
          rows[r] = top + 16 * r < m ? top + 16 * r : m - 1;
          columns[r] = left + 16 * r < n ? left + 16 * r : n - 1;
        }
        float sums[4][4] = {};
        (add_term(sums, rows, columns, terms), ...);
        TRANSNORMER_UNROLL
        for (int r = 0; r < 4; ++r) {
          TRANSNORMER_UNROLL
          for (int c = 0; c < 4; ++c) {
            if (top + 16 * r < m && left + 16 * c < n) {
              give(top + 16 * r, left + 16 * c, sums[r][c]);
            }
          }
        }
      }
    }
  });
}

}  // namespace transnormer::ops::cuda
