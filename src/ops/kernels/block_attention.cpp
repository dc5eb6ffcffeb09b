// Causal attention inside blocks: softmax or ReLU of the scores, with dropout on the weights.
#include "ops/kernels/functions.h"
#include "ops/kernels/matrix.h"
#include "ops/kernels/philox.h"

namespace transnormer::ops::kernels::TRANSNORMER_ISA {
namespace {

struct Buffers {
  Buffers(const BlockAttention& shape) : width(padded(shape.dim)), reach(padded(shape.block)) {
    float* next = shape.scratch;
    const auto take = [&next](std::int64_t count) {
      float* taken = next;
      next += count;
      return taken;
    };
    q = take(reach * width);
    k = take(reach * width);
    k_turned = take(reach * width);
    v = take(reach * width);
    v_turned = take(reach * width);
    gradient = take(reach * width);
    result = take(reach * width);
    weights = take(reach * reach);
    d_weights = take(reach * reach);
    mask = take(reach * reach);
  }

  std::int64_t width;  // of rows
  std::int64_t reach;  // of scores
  float* q;
  float* k;
  float* k_turned;
  float* v;
  float* v_turned;
  float* gradient;
  float* result;
  float* weights;    // before dropout
  float* d_weights;  // then d(scores)
  float* mask;       // then the weights after dropout
};

// One block of one head.
struct Span {
  std::int64_t head;  // of batch * heads
  std::int64_t time;
  std::int64_t rows;
};

// True in the lanes of vector j that row i sees.
I seen(std::int64_t row, std::int64_t j) {
  return iota() <= static_cast<std::int32_t>(row - j);
}

void softmax_row(float* scores, std::int64_t row) {
  F best = splat(-__builtin_inff());
  for (std::int64_t j = 0; j <= row; j += kLanes) {
    const F masked = seen(row, j) ? load(scores + j) : splat(-__builtin_inff());
    store(scores + j, masked);
    best = maximum(masked, best);
  }
  const float top = maximum(best);
  F sums{};
  for (std::int64_t j = 0; j <= row; j += kLanes) {
    const F e = exp(load(scores + j) - top);
    store(scores + j, e);
    sums += e;
  }
  const float scale = 1 / sum(sums);
  for (std::int64_t j = 0; j <= row; j += kLanes) {
    store(scores + j, load(scores + j) * scale);
  }
}

void relu_row(float* scores, std::int64_t row) {
  for (std::int64_t j = 0; j <= row; j += kLanes) {
    const F s = seen(row, j) ? load(scores + j) : F{};
    store(scores + j, s < 0.F ? F{} : s);
  }
}

// The weights of all rows, before dropout, zero where a row does not see.
void make_weights(const BlockAttention& shape, const Buffers& b, std::int64_t rows) {
  product<Part::result_lower>({b.q, b.width, 1}, b.k_turned, b.reach, b.weights, b.reach, rows,
                              b.reach, shape.dim, false);
  for (std::int64_t i = 0; i < rows; ++i) {
    if (shape.softmax) {
      softmax_row(b.weights + i * b.reach, i);
    } else {
      relu_row(b.weights + i * b.reach, i);
    }
  }
}

void make_mask(const BlockAttention& shape, const Buffers& b, const Span& span) {
  Mask m = shape.mask;
  m.sample += static_cast<std::uint64_t>(span.head / shape.heads);
  for (std::int64_t i = 0; i < span.rows; ++i) {
    m.first = static_cast<std::uint64_t>((span.head % shape.heads * shape.time + span.time + i) *
                                         shape.block);
    float* row = b.mask + i * b.reach;
    for_mask_tiles(m, i + 1, [&](std::int64_t place, const float* mask, std::int64_t n) {
      for (std::int64_t j = 0; j < n; ++j) {
        row[place + j] = mask[j];
      }
    });
  }
}

// Turns the mask into the weights after dropout.
void drop_weights(const Buffers& b, std::int64_t rows) {
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j <= i; j += kLanes) {
      const std::int64_t at = i * b.reach + j;
      store(b.mask + at, seen(i, j) ? load(b.mask + at) * load(b.weights + at) : F{});
    }
  }
}

// d(weights) after dropout -> d(scores), in place.
void score_gradients(const BlockAttention& shape, const Buffers& b, std::int64_t rows) {
  for (std::int64_t i = 0; i < rows; ++i) {
    const float* p = b.weights + i * b.reach;
    const float* mask = b.mask + i * b.reach;
    float* d = b.d_weights + i * b.reach;
    F sums{};
    for (std::int64_t j = 0; j <= i; j += kLanes) {
      const F dropped = shape.drops ? load(d + j) * load(mask + j) : load(d + j);
      const F clean = seen(i, j) ? dropped : F{};
      store(d + j, clean);
      sums += clean * load(p + j);
    }
    const float along = sum(sums);
    for (std::int64_t j = 0; j <= i; j += kLanes) {
      const F weight = load(p + j);
      const F g = load(d + j);
      store(d + j, shape.softmax ? weight * (g - along) : (weight <= 0.F ? F{} : g));
    }
  }
}

template <typename T>
void pack_keys(const BlockAttention& shape, const Buffers& b, const Span& span, std::int64_t place,
               const T* q, const T* k, const T* v) {
  const std::int64_t stride = shape.heads * shape.dim;
  pack(q + place, stride, span.rows, shape.dim, shape.scale, b.q);
  pack(k + place, stride, span.rows, shape.dim, 1, b.k);
  pack(v + place, stride, span.rows, shape.dim, 1, b.v);
  transpose(b.k, b.width, span.rows, shape.dim, b.k_turned, b.reach);
}

template <typename T>
void forward_block(const BlockAttention& shape, const Buffers& b, const Span& span,
                   std::int64_t place, const T* q, const T* k, const T* v, T* out) {
  pack_keys(shape, b, span, place, q, k, v);
  make_weights(shape, b, span.rows);
  const float* weights = b.weights;
  if (shape.drops) {
    make_mask(shape, b, span);
    drop_weights(b, span.rows);
    weights = b.mask;
  }
  product<Part::left_lower>({weights, b.reach, 1}, b.v, b.width, b.result, b.width, span.rows,
                            b.width, span.rows, false);
  unpack(b.result, span.rows, shape.dim, 1, out + place, shape.heads * shape.dim);
}

template <typename T>
void backward_block(const BlockAttention& shape, const Buffers& b, const Span& span,
                    std::int64_t place, const T* q, const T* k, const T* v, const T* d_out, T* d_q,
                    T* d_k, T* d_v) {
  const std::int64_t stride = shape.heads * shape.dim;
  const std::int64_t rows = span.rows;
  pack_keys(shape, b, span, place, q, k, v);
  pack(d_out + place, stride, rows, shape.dim, 1, b.gradient);
  transpose(b.v, b.width, rows, shape.dim, b.v_turned, b.reach);
  make_weights(shape, b, rows);
  product<Part::result_lower>({b.gradient, b.width, 1}, b.v_turned, b.reach, b.d_weights, b.reach,
                              rows, b.reach, shape.dim, false);
  if (shape.drops) {
    make_mask(shape, b, span);
  }
  score_gradients(shape, b, rows);
  const float* dropped = b.weights;
  if (shape.drops) {
    drop_weights(b, rows);
    dropped = b.mask;
  }
  product<Part::left_upper>({dropped, 1, b.reach}, b.gradient, b.width, b.result, b.width, rows,
                            b.width, rows, false);
  unpack(b.result, rows, shape.dim, 1, d_v + place, stride);
  product<Part::left_lower>({b.d_weights, b.reach, 1}, b.k, b.width, b.result, b.width, rows,
                            b.width, rows, false);
  unpack(b.result, rows, shape.dim, shape.scale, d_q + place, stride);
  product<Part::left_upper>({b.d_weights, 1, b.reach}, b.q, b.width, b.result, b.width, rows,
                            b.width, rows, false);
  unpack(b.result, rows, shape.dim, 1, d_k + place, stride);
}

// Calls body(span, place of its first row) for every block of the heads of `shape`.
template <typename Body>
void for_blocks(const BlockAttention& shape, Body body) {
  for (std::int64_t head = shape.first; head < shape.last; ++head) {
    for (std::int64_t t = 0; t < shape.time; t += shape.block) {
      const std::int64_t rows = shape.time - t < shape.block ? shape.time - t : shape.block;
      const std::int64_t row = (head / shape.heads * shape.time + t) * shape.heads;
      body(Span{head, t, rows}, (row + head % shape.heads) * shape.dim);
    }
  }
}

}  // namespace

void block_attention(const BlockAttention& shape, In q, In k, In v, Out out) {
  const Buffers b(shape);
  by_type(q.type, [&](auto* t) {
    for_blocks(shape, [&](const Span& span, std::int64_t place) {
      forward_block(shape, b, span, place, as(q, t), as(k, t), as(v, t), as(out, t));
    });
  });
}

void block_attention_backward(const BlockAttention& shape, In q, In k, In v, In d_out, Out d_q,
                              Out d_k, Out d_v) {
  const Buffers b(shape);
  by_type(q.type, [&](auto* t) {
    for_blocks(shape, [&](const Span& span, std::int64_t place) {
      backward_block(shape, b, span, place, as(q, t), as(k, t), as(v, t), as(d_out, t), as(d_q, t),
                     as(d_k, t), as(d_v, t));
    });
  });
}

}  // namespace transnormer::ops::kernels::TRANSNORMER_ISA
