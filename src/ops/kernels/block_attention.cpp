// Causal attention inside blocks: softmax or ReLU of the scores, with dropout on the weights.
#include "ops/kernels/functions.h"
#include "ops/kernels/matrix.h"
#include "ops/kernels/philox.h"
#include "ops/kernels/rows.h"

namespace transnormer::ops::kernels::TRANSNORMER_ISA {
namespace {

struct Buffers {
  explicit Buffers(const BlockAttention& shape)
      : width(padded(shape.dim)), reach(padded(shape.block)) {
    float* next = shape.scratch;
    const auto take = [&next](std::int64_t count) {
      float* taken = next;
      next += count;
      return taken;
    };
    q = take(reach * width);
    k = take(reach * width);
    k_transposed = take(reach * width);
    v = take(reach * width);
    v_transposed = take(reach * width);
    gradient = take(reach * width);
    result = take(reach * width);
    weights = take(reach * reach);
    d_weights = take(reach * reach);
    mask = take(reach * reach);
    share = take(reach);
  }

  std::int64_t width;  // of rows
  std::int64_t reach;  // of scores
  float* q;            // scaled
  float* k;
  float* k_transposed;
  float* v;
  float* v_transposed;
  float* gradient;
  float* result;
  float* weights;    // before dropout: of softmax, before they are divided by their sum
  float* d_weights;  // then d(scores)
  float* mask;       // then the weights after dropout
  float* share;      // of each row: what makes its weights whole
};

// One block of one head.
struct Block {
  std::int64_t batch;
  std::int64_t head;
  std::int64_t time;
  std::int64_t rows;
};

template <typename T>
struct Operands {
  Heads<const T> q;
  Heads<const T> k;
  Heads<const T> v;
  Heads<const T> gradient;  // of the output
};

template <typename T>
struct Results {
  Heads<T> q;
  Heads<T> k;
  Heads<T> v;
};

// Keeps the lanes of vector j that row i sees; the others become `hidden`.
F keep_seen(F x, std::int64_t row, std::int64_t j, F hidden) {
  return iota() <= static_cast<std::int32_t>(row - j) ? x : hidden;
}

// Calls body(j, seen) for the vectors that row i sees, whole or in part; seen(x, hidden) masks.
template <typename Body>
void for_seen(std::int64_t row, Body body) {
  std::int64_t j = 0;
  for (; j + kLanes <= row + 1; j += kLanes) {
    body(j, [](F x, F) { return x; });
  }
  if (j <= row) {
    body(j, [=](F x, F hidden) { return keep_seen(x, row, j, hidden); });
  }
}

// Exponentials; returns the inverse of their sum.
float softmax_row(float* scores, std::int64_t row) {
  const F none = splat(-__builtin_inff());
  F best = none;
  for_seen(row,
           [&](std::int64_t j, auto seen) { best = maximum(seen(load(scores + j), none), best); });
  const float top = maximum(best);
  F sums{};
  for_seen(row, [&](std::int64_t j, auto seen) {
    const F e = seen(exp(load(scores + j) - top), F{});
    store(scores + j, e);
    sums += e;
  });
  return 1 / sum(sums);
}

float relu_row(float* scores, std::int64_t row) {
  for_seen(row, [&](std::int64_t j, auto seen) {
    const F s = load(scores + j);
    store(scores + j, seen(s < 0.F ? F{} : s, F{}));
  });
  return 1;
}

// The weights of all rows, before dropout, zero where a row does not see.
void make_weights(const BlockAttention& shape, const Buffers& b, std::int64_t rows) {
  product<Part::result_lower>(Left{b.q, b.width}, b.k_transposed, b.reach, b.weights, b.reach, rows,
                              b.reach, shape.dim, false);
  for (std::int64_t i = 0; i < rows; ++i) {
    float* row = b.weights + i * b.reach;
    b.share[i] = shape.softmax ? softmax_row(row, i) : relu_row(row, i);
  }
}

void make_mask(const BlockAttention& shape, const Buffers& b, const Block& block) {
  Mask m = shape.mask;
  m.sample += static_cast<std::uint64_t>(block.batch);
  for (std::int64_t i = 0; i < block.rows; ++i) {
    m.first = shape.mask.first + static_cast<std::uint64_t>(
                                     ((block.time + i) * shape.heads + block.head) * shape.block);
    float* row = b.mask + i * b.reach;
    for_mask_tiles(m, i + 1, [&](std::int64_t place, const float* mask, std::int64_t n) {
      for (std::int64_t j = 0; j < n; ++j) {
        row[place + j] = mask[j];
      }
    });
  }
}

// The mask becomes the weights after dropout.
void drop_weights(const Buffers& b, std::int64_t rows) {
  for (std::int64_t i = 0; i < rows; ++i) {
    const float* weights = b.weights + i * b.reach;
    float* mask = b.mask + i * b.reach;
    for_seen(i, [&](std::int64_t j, auto seen) {
      store(mask + j, seen(load(mask + j) * load(weights + j), F{}));
    });
  }
}

// d(weights) after dropout -> d(scores), in place; makes the weights whole.
void score_gradients(const BlockAttention& shape, const Buffers& b, std::int64_t rows) {
  for (std::int64_t i = 0; i < rows; ++i) {
    float* p = b.weights + i * b.reach;
    const float* mask = b.mask + i * b.reach;
    float* d = b.d_weights + i * b.reach;
    const float share = b.share[i];
    F sums{};
    for_seen(i, [&](std::int64_t j, auto seen) {
      const F dropped = shape.drops ? load(d + j) * load(mask + j) : load(d + j);
      const F clean = seen(dropped, F{});
      store(d + j, clean);
      sums += clean * load(p + j);
    });
    const float along = sum(sums) * share;
    for_seen(i, [&](std::int64_t j, auto) {
      const F weight = load(p + j) * share;
      const F g = load(d + j);
      store(p + j, weight);
      store(d + j, shape.softmax ? weight * (g - along) : (weight <= 0.F ? F{} : g));
    });
  }
}

template <typename T>
void pack_operands(const BlockAttention& shape, const Buffers& b, const Block& block,
                   const Operands<T>& x) {
  const Span s{block.time, block.rows, shape.dim};
  const auto here = [&](const Heads<const T>& of) {
    return of.rows(block.batch, block.head, block.time);
  };
  pack(shape.feature, shape.lrpe, s, here(x.q), shape.scale, b.q);
  pack(shape.feature, shape.lrpe, s, here(x.k), 1, b.k);
  pack(s, here(x.v), b.v);
  transpose(b.k, b.width, block.rows, shape.dim, b.k_transposed, b.reach);
}

template <typename T>
void forward_block(const BlockAttention& shape, const Buffers& b, const Block& block,
                   const Operands<T>& x, const Heads<T>& out) {
  pack_operands(shape, b, block, x);
  make_weights(shape, b, block.rows);
  float* weights = b.weights;
  if (shape.drops) {
    make_mask(shape, b, block);
    drop_weights(b, block.rows);
    weights = b.mask;
  }
  clear_above_diagonal(weights, b.reach, block.rows);
  product<Part::left_lower>(Left{weights, b.reach}, b.v, b.width, b.result, b.width, block.rows,
                            b.width, block.rows, false);
  const Rows<T> to = out.rows(block.batch, block.head, block.time);
  for (std::int64_t i = 0; i < block.rows; ++i) {
    for (std::int64_t j = 0; j < shape.dim; j += kLanes) {
      store(to.row(i) + j, load(b.result + i * b.width + j) * b.share[i], shape.dim - j);
    }
  }
}

template <typename T>
void backward_block(const BlockAttention& shape, const Buffers& b, const Block& block,
                    const Operands<T>& x, const Results<T>& d, double* d_theta) {
  const std::int64_t rows = block.rows;
  const Span s{block.time, rows, shape.dim};
  const auto here = [&](const auto& of) { return of.rows(block.batch, block.head, block.time); };
  pack_operands(shape, b, block, x);
  pack(s, here(x.gradient), b.gradient);
  transpose(b.v, b.width, rows, shape.dim, b.v_transposed, b.reach);
  make_weights(shape, b, rows);
  product<Part::result_lower>(Left{b.gradient, b.width}, b.v_transposed, b.reach, b.d_weights,
                              b.reach, rows, b.reach, shape.dim, false);
  if (shape.drops) {
    make_mask(shape, b, block);
  }
  score_gradients(shape, b, rows);
  float* dropped = b.weights;
  if (shape.drops) {
    drop_weights(b, rows);
    dropped = b.mask;
  }
  clear_above_diagonal(dropped, b.reach, rows);
  clear_above_diagonal(b.d_weights, b.reach, rows);
  const Rows<const float> result{b.result, b.width};
  product<Part::left_upper>(Transposed{dropped, b.reach}, b.gradient, b.width, b.result, b.width,
                            rows, b.width, rows, false);
  unpack(s, b.result, here(d.v));
  product<Part::left_lower>(Left{b.d_weights, b.reach}, b.k, b.width, b.result, b.width, rows,
                            b.width, rows, false);
  encode_backward(shape.feature, shape.lrpe, s, here(x.q), result, shape.scale, here(d.q), d_theta);
  product<Part::left_upper>(Transposed{b.d_weights, b.reach}, b.q, b.width, b.result, b.width, rows,
                            b.width, rows, false);
  encode_backward(shape.feature, shape.lrpe, s, here(x.k), result, 1, here(d.k), d_theta);
}

// Calls body(block) for every block of the heads of `shape`: all heads of one block, then those of
// the next, so that memory is walked in order.
template <typename Body>
void for_blocks(const BlockAttention& shape, Body body) {
  for (std::int64_t head = shape.first; head < shape.last;) {
    const std::int64_t batch = head / shape.heads;
    const std::int64_t end =
        (batch + 1) * shape.heads < shape.last ? (batch + 1) * shape.heads : shape.last;
    for (std::int64_t t = 0; t < shape.time; t += shape.block) {
      const std::int64_t rows = shape.time - t < shape.block ? shape.time - t : shape.block;
      for (std::int64_t each = head; each < end; ++each) {
        body(Block{batch, each % shape.heads, t, rows});
      }
    }
    head = end;
  }
}

}  // namespace

void block_attention(const BlockAttention& shape, In q, In k, In v, Out out) {
  const Buffers b(shape);
  by_type(q.type, [&]<typename T>(T* t) {
    const auto heads = [&]<typename E>(E* data, std::int64_t stride) {
      return Heads<E>{data, stride, shape.time, shape.heads, shape.dim};
    };
    const Operands<T> x{heads(as(q, t), shape.strides.q),
                        heads(as(k, t), shape.strides.k),
                        heads(as(v, t), shape.strides.v),
                        {}};
    const Heads<T> y = heads(as(out, t), 0);
    for_blocks(shape, [&](const Block& block) { forward_block(shape, b, block, x, y); });
  });
}

void block_attention_backward(const BlockAttention& shape, In q, In k, In v, In d_out, Out d_q,
                              Out d_k, Out d_v, double* d_theta) {
  const Buffers b(shape);
  by_type(q.type, [&]<typename T>(T* t) {
    const auto heads = [&]<typename E>(E* data, std::int64_t stride) {
      return Heads<E>{data, stride, shape.time, shape.heads, shape.dim};
    };
    const RowStrides& out = shape.gradient_strides;
    const Operands<T> x{heads(as(q, t), shape.strides.q), heads(as(k, t), shape.strides.k),
                        heads(as(v, t), shape.strides.v), heads(as(d_out, t), 0)};
    const Results<T> d{heads(as(d_q, t), out.q), heads(as(d_k, t), out.k),
                       heads(as(d_v, t), out.v)};
    for_blocks(shape, [&](const Block& block) {
      double* share = d_theta == nullptr
                          ? nullptr
                          : d_theta + (block.batch * shape.heads + block.head) * (shape.dim / 2);
      backward_block(shape, b, block, x, d, share);
    });
  });
}

}  // namespace transnormer::ops::kernels::TRANSNORMER_ISA
