// Tensors [batch, time, heads, dim] as the attentions' kernels see them.
#pragma once

#include "ops/cuda/tiles.h"

namespace transnormer::ops::cuda {

template <typename Tensor>
struct Heads {
  Tensor x;
  std::int64_t time;
  std::int64_t heads;
  std::int64_t dim;

  // `head` is of batch * heads.
  [[nodiscard]] TRANSNORMER_DEVICE std::int64_t place(std::int64_t head, std::int64_t t,
                                                      std::int64_t i) const {
    return ((head / heads * time + t) * heads + head % heads) * dim + i;
  }
};

struct HeadsIn : Heads<In> {
  [[nodiscard]] TRANSNORMER_DEVICE float at(std::int64_t head, std::int64_t t,
                                            std::int64_t i) const {
    return load(x, place(head, t, i));
  }
};

struct HeadsOut : Heads<Out> {
  TRANSNORMER_DEVICE void set(std::int64_t head, std::int64_t t, std::int64_t i, float to) const {
    store(x, place(head, t, i), to);
  }
};

template <typename Shape>
HeadsIn heads(const Shape& shape, In x, std::int64_t dim) {
  return {{x, shape.time, shape.heads, dim}};
}
template <typename Shape>
HeadsOut heads(const Shape& shape, Out x, std::int64_t dim) {
  return {{x, shape.time, shape.heads, dim}};
}

// Rows of one head from `time` on, times `scale`.
template <typename Block>
TRANSNORMER_DEVICE void read_rows(const Block& block, const HeadsIn& x, std::int64_t head,
                                  std::int64_t time, int rows, float scale, const Tile& to) {
  for_elements(block, rows, static_cast<int>(x.dim),
               [&](int i, int j) { to.at(i, j) = x.at(head, time + i, j) * scale; });
}

}  // namespace transnormer::ops::cuda
