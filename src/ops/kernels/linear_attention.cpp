// Chunked causal linear attention; the formulas stand in causal_linear_attention_tensor.h.
#include "ops/kernels/functions.h"
#include "ops/kernels/matrix.h"

namespace transnormer::ops::kernels::TRANSNORMER_ISA {
namespace {

// The buffers of one chunk: its rows in fp32, two transposes, scores, and the running sum.
struct Buffers {
  Buffers(const LinearAttention& shape)
      : k_width(padded(shape.key_dim)), v_width(padded(shape.value_dim)) {
    float* next = shape.scratch;
    const auto take = [&next](std::int64_t count) {
      float* taken = next;
      next += count;
      return taken;
    };
    q = take(kChunk * k_width);
    k = take(kChunk * k_width);
    k_turned = take(kChunk * k_width);
    k_result = take(kChunk * k_width);
    v = take(kChunk * v_width);
    v_turned = take(kChunk * v_width);
    gradient = take(kChunk * v_width);
    v_result = take(kChunk * v_width);
    scores = take(kChunk * kChunk);
    d_scores = take(kChunk * kChunk);
    sum = take(k_width * v_width);
    sum_turned = take(k_width * v_width);
  }

  std::int64_t k_width;
  std::int64_t v_width;
  float* q;
  float* k;
  float* k_turned;  // [key_dim, kChunk]
  float* k_result;  // a result as wide as keys
  float* v;
  float* v_turned;  // [value_dim, kChunk]
  float* gradient;
  float* v_result;
  float* scores;      // tril(Q K^T)
  float* d_scores;    // tril(dO V^T)
  float* sum;         // [key_dim, v_width]
  float* sum_turned;  // [value_dim, k_width]
};

void clear(float* x, std::int64_t count) {
  __builtin_memset(x, 0, sizeof(float) * static_cast<std::size_t>(count));
}

void copy_state(const float* from, std::int64_t from_stride, float* to, std::int64_t to_stride,
                const LinearAttention& shape) {
  for (std::int64_t i = 0; i < shape.key_dim; ++i) {
    for (std::int64_t j = 0; j < shape.value_dim; ++j) {
      to[i * to_stride + j] = from[i * from_stride + j];
    }
  }
}

// tril(a b^T) of chunk rows, b given transposed.
void lower_scores(const float* a, std::int64_t width, std::int64_t depth, const float* b_turned,
                  float* scores, std::int64_t rows) {
  product<Part::result_lower>({a, width, 1}, b_turned, kChunk, scores, kChunk, rows, kChunk, depth,
                              false);
  clear_above_diagonal(scores, kChunk, rows);
}

std::int64_t place(const LinearAttention& shape, std::int64_t head, std::int64_t time,
                   std::int64_t dim) {
  return ((head / shape.heads * shape.time + time) * shape.heads + head % shape.heads) * dim;
}

template <typename T>
void forward_head(const LinearAttention& shape, std::int64_t head, const T* q, const T* k,
                  const T* v, T* out, float* state) {
  const Buffers b(shape);
  const std::int64_t k_stride = shape.heads * shape.key_dim;
  const std::int64_t v_stride = shape.heads * shape.value_dim;
  clear(b.sum, b.k_width * b.v_width);
  if (state != nullptr) {
    copy_state(state, shape.value_dim, b.sum, b.v_width, shape);
  }
  for (std::int64_t t = 0; t < shape.time; t += kChunk) {
    const std::int64_t rows = shape.time - t < kChunk ? shape.time - t : kChunk;
    const std::int64_t k_place = place(shape, head, t, shape.key_dim);
    const std::int64_t v_place = place(shape, head, t, shape.value_dim);
    pack(q + k_place, k_stride, rows, shape.key_dim, 1, b.q);
    pack(k + k_place, k_stride, rows, shape.key_dim, 1, b.k);
    pack(v + v_place, v_stride, rows, shape.value_dim, 1, b.v);
    transpose(b.k, b.k_width, rows, shape.key_dim, b.k_turned, kChunk);
    lower_scores(b.q, b.k_width, shape.key_dim, b.k_turned, b.scores, rows);
    product<Part::all>({b.q, b.k_width, 1}, b.sum, b.v_width, b.v_result, b.v_width, rows,
                       b.v_width, shape.key_dim, false);
    product<Part::left_lower>({b.scores, kChunk, 1}, b.v, b.v_width, b.v_result, b.v_width, rows,
                              b.v_width, rows, true);
    unpack(b.v_result, rows, shape.value_dim, 1, out + v_place, v_stride);
    product<Part::all>({b.k, 1, b.k_width}, b.v, b.v_width, b.sum, b.v_width, shape.key_dim,
                       b.v_width, rows, true);
  }
  if (state != nullptr) {
    copy_state(b.sum, b.v_width, state, shape.value_dim, shape);
  }
}

// d(q), from the front: it needs the sums before each chunk.
template <typename T>
void backward_queries(const LinearAttention& shape, std::int64_t head, const T* k, const T* v,
                      const T* d_out, T* d_q) {
  const Buffers b(shape);
  const std::int64_t k_stride = shape.heads * shape.key_dim;
  const std::int64_t v_stride = shape.heads * shape.value_dim;
  clear(b.sum_turned, b.k_width * b.v_width);
  for (std::int64_t t = 0; t < shape.time; t += kChunk) {
    const std::int64_t rows = shape.time - t < kChunk ? shape.time - t : kChunk;
    const std::int64_t k_place = place(shape, head, t, shape.key_dim);
    const std::int64_t v_place = place(shape, head, t, shape.value_dim);
    pack(k + k_place, k_stride, rows, shape.key_dim, 1, b.k);
    pack(v + v_place, v_stride, rows, shape.value_dim, 1, b.v);
    pack(d_out + v_place, v_stride, rows, shape.value_dim, 1, b.gradient);
    transpose(b.v, b.v_width, rows, shape.value_dim, b.v_turned, kChunk);
    lower_scores(b.gradient, b.v_width, shape.value_dim, b.v_turned, b.d_scores, rows);
    product<Part::all>({b.gradient, b.v_width, 1}, b.sum_turned, b.k_width, b.k_result, b.k_width,
                       rows, b.k_width, shape.value_dim, false);
    product<Part::left_lower>({b.d_scores, kChunk, 1}, b.k, b.k_width, b.k_result, b.k_width, rows,
                              b.k_width, rows, true);
    unpack(b.k_result, rows, shape.key_dim, 1, d_q + k_place, k_stride);
    product<Part::all>({b.v, 1, b.v_width}, b.k, b.k_width, b.sum_turned, b.k_width,
                       shape.value_dim, b.k_width, rows, true);
  }
}

// d(k) and d(v), from the back: they need the sums of q dO^T after each chunk.
template <typename T>
void backward_keys_values(const LinearAttention& shape, std::int64_t head, const T* q, const T* k,
                          const T* v, const T* d_out, T* d_k, T* d_v) {
  const Buffers b(shape);
  const std::int64_t k_stride = shape.heads * shape.key_dim;
  const std::int64_t v_stride = shape.heads * shape.value_dim;
  clear(b.sum, b.k_width * b.v_width);
  clear(b.sum_turned, b.k_width * b.v_width);
  for (std::int64_t t = (shape.time - 1) / kChunk * kChunk; t >= 0; t -= kChunk) {
    const std::int64_t rows = shape.time - t < kChunk ? shape.time - t : kChunk;
    const std::int64_t k_place = place(shape, head, t, shape.key_dim);
    const std::int64_t v_place = place(shape, head, t, shape.value_dim);
    pack(q + k_place, k_stride, rows, shape.key_dim, 1, b.q);
    pack(k + k_place, k_stride, rows, shape.key_dim, 1, b.k);
    pack(v + v_place, v_stride, rows, shape.value_dim, 1, b.v);
    pack(d_out + v_place, v_stride, rows, shape.value_dim, 1, b.gradient);
    transpose(b.k, b.k_width, rows, shape.key_dim, b.k_turned, kChunk);
    transpose(b.v, b.v_width, rows, shape.value_dim, b.v_turned, kChunk);
    lower_scores(b.q, b.k_width, shape.key_dim, b.k_turned, b.scores, rows);
    lower_scores(b.gradient, b.v_width, shape.value_dim, b.v_turned, b.d_scores, rows);
    product<Part::all>({b.v, b.v_width, 1}, b.sum_turned, b.k_width, b.k_result, b.k_width, rows,
                       b.k_width, shape.value_dim, false);
    product<Part::left_upper>({b.d_scores, 1, kChunk}, b.q, b.k_width, b.k_result, b.k_width, rows,
                              b.k_width, rows, true);
    unpack(b.k_result, rows, shape.key_dim, 1, d_k + k_place, k_stride);
    product<Part::all>({b.k, b.k_width, 1}, b.sum, b.v_width, b.v_result, b.v_width, rows,
                       b.v_width, shape.key_dim, false);
    product<Part::left_upper>({b.scores, 1, kChunk}, b.gradient, b.v_width, b.v_result, b.v_width,
                              rows, b.v_width, rows, true);
    unpack(b.v_result, rows, shape.value_dim, 1, d_v + v_place, v_stride);
    if (t > 0) {
      product<Part::all>({b.q, 1, b.k_width}, b.gradient, b.v_width, b.sum, b.v_width,
                         shape.key_dim, b.v_width, rows, true);
      transpose(b.sum, b.v_width, shape.key_dim, shape.value_dim, b.sum_turned, b.k_width);
    }
  }
}

}  // namespace

void linear_attention(const LinearAttention& shape, In q, In k, In v, Out out, float* state) {
  by_type(q.type, [&](auto* t) {
    for (std::int64_t head = shape.first; head < shape.last; ++head) {
      float* own = state == nullptr ? nullptr : state + head * shape.key_dim * shape.value_dim;
      forward_head(shape, head, as(q, t), as(k, t), as(v, t), as(out, t), own);
    }
  });
}

void linear_attention_backward(const LinearAttention& shape, In q, In k, In v, In d_out, Out d_q,
                               Out d_k, Out d_v) {
  by_type(q.type, [&](auto* t) {
    for (std::int64_t head = shape.first; head < shape.last; ++head) {
      backward_queries(shape, head, as(k, t), as(v, t), as(d_out, t), as(d_q, t));
      backward_keys_values(shape, head, as(q, t), as(k, t), as(v, t), as(d_out, t), as(d_k, t),
                           as(d_v, t));
    }
  });
}

}  // namespace transnormer::ops::kernels::TRANSNORMER_ISA
