// Chunked causal linear attention; the formulas stand in linear_attention_tensor.h.
#include "ops/kernels/functions.h"
#include "ops/kernels/matrix.h"
#include "ops/kernels/rows.h"

namespace transnormer::ops::kernels::TRANSNORMER_ISA {
namespace {

// The buffers of one chunk of one head: its rows in fp32, two transposes and scores; and the
// running sums of all heads.
struct Buffers {
  explicit Buffers(const LinearAttention& shape)
      : k_width(padded(shape.key_dim)), v_width(padded(shape.value_dim)) {
    float* next = shape.scratch;
    const auto take = [&next](std::int64_t count) {
      float* taken = next;
      next += count;
      return taken;
    };
    q = take(kChunk * k_width);
    k = take(kChunk * k_width);
    k_transposed = take(kChunk * k_width);
    k_result = take(kChunk * k_width);
    v = take(kChunk * v_width);
    v_transposed = take(kChunk * v_width);
    gradient = take(kChunk * v_width);
    v_result = take(kChunk * v_width);
    scores = take(kChunk * kChunk);
    d_scores = take(kChunk * kChunk);
    sum_transposed = take(k_width * v_width);
    sums = next;
  }

  std::int64_t k_width;
  std::int64_t v_width;
  float* q;
  float* k;
  float* k_transposed;  // [key_dim, kChunk]
  float* k_result;      // a result as wide as keys
  float* v;
  float* v_transposed;  // [value_dim, kChunk]
  float* gradient;
  float* v_result;
  float* scores;          // tril(Q K^T)
  float* d_scores;        // tril(dO V^T)
  float* sum_transposed;  // [value_dim, k_width]
  float* sums;            // [heads, k_width, v_width], or its last two the other way round
};

// Some heads of one batch row.
struct Group {
  std::int64_t batch;
  std::int64_t first;
  std::int64_t count;
};

template <typename T>
struct Operands {
  Heads<const T> q;
  Heads<const T> k;
  Heads<const T> v;
  Heads<const T> gradient;  // of the output
};

// The chunks of a group of heads: all heads of one chunk, then those of the next, so that memory is
// walked in order. What a chunk needs is packed into the buffers by name.
template <typename T>
class Chunks {
 public:
  Chunks(const LinearAttention& shape, const Group& group, const Operands<T>& x)
      : b(shape), shape_(shape), group_(group), x_(x) {
    clear_sums();
  }

  // Calls body() for each head of each chunk, from the front.
  template <typename Body>
  void forward(Body body) {
    for (std::int64_t t = 0; t < shape_.time; t += kChunk) {
      heads_at(t, body);
    }
    clear_sums();
  }

  // .. or from the back.
  template <typename Body>
  void backward(Body body) {
    for (std::int64_t t = (shape_.time - 1) / kChunk * kChunk; t >= 0; t -= kChunk) {
      heads_at(t, body);
    }
    clear_sums();
  }

  [[nodiscard]] bool first() const { return time_ == 0; }
  [[nodiscard]] bool last() const { return time_ + rows() == shape_.time; }
  [[nodiscard]] std::int64_t rows() const {
    return shape_.time - time_ < kChunk ? shape_.time - time_ : kChunk;
  }
  [[nodiscard]] std::int64_t head() const { return group_.batch * shape_.heads + number(); }

  // The sum that this head carries from chunk to chunk.
  [[nodiscard]] float* sum() const { return b.sums + head_ * b.k_width * b.v_width; }

  void pack_queries() const { pack(shape_.feature, shape_.lrpe, keys(), here(x_.q), 1, b.q); }
  void pack_keys() const { pack(shape_.feature, shape_.lrpe, keys(), here(x_.k), 1, b.k); }
  void pack_values() const { pack(values(), here(x_.v), b.v); }
  void pack_gradient() const { pack(values(), here(x_.gradient), b.gradient); }
  void transpose_keys() const {
    transpose(b.k, b.k_width, rows(), shape_.key_dim, b.k_transposed, kChunk);
  }
  void transpose_values() const {
    transpose(b.v, b.v_width, rows(), shape_.value_dim, b.v_transposed, kChunk);
  }

  // tril(Q K^T), tril(dO V^T): by the transposed right factors.
  void make_scores() const {
    lower_scores(b.q, b.k_width, shape_.key_dim, b.k_transposed, b.scores);
  }
  void make_d_scores() const {
    lower_scores(b.gradient, b.v_width, shape_.value_dim, b.v_transposed, b.d_scores);
  }

  // result = left * right, or result += left * right; `n` is the width of right and result.
  template <Part part, typename A>
  void multiply(A left, std::int64_t depth, const float* right, std::int64_t n, float* result,
                bool add) const {
    product<part>(left, right, n, result, n, rows(), n, depth, add);
  }

  void put_values(const float* from, const Heads<T>& to) const { unpack(values(), from, here(to)); }
  // The gradient of the rows before their encoding.
  void put_keys(const float* from, const Heads<const T>& x, const Heads<T>& d_x,
                double* d_theta) const {
    double* share = d_theta == nullptr ? nullptr : d_theta + head() * (shape_.key_dim / 2);
    encode_backward(shape_.feature, shape_.lrpe, keys(), here(x),
                    Rows<const float>{from, b.k_width}, 1, here(d_x), share);
  }

  const Buffers b;

 private:
  [[nodiscard]] std::int64_t number() const { return group_.first + head_; }
  [[nodiscard]] Span keys() const { return {time_, rows(), shape_.key_dim}; }
  [[nodiscard]] Span values() const { return {time_, rows(), shape_.value_dim}; }

  template <typename E>
  [[nodiscard]] Rows<E> here(const Heads<E>& x) const {
    return x.rows(group_.batch, number(), time_);
  }

  template <typename Body>
  void heads_at(std::int64_t time, Body body) {
    time_ = time;
    for (head_ = 0; head_ < group_.count; ++head_) {
      body();
    }
  }

  void lower_scores(const float* left, std::int64_t width, std::int64_t depth, const float* right,
                    float* scores) const {
    product<Part::result_lower>(Left{left, width}, right, kChunk, scores, kChunk, rows(), kChunk,
                                depth, false);
    clear_above_diagonal(scores, kChunk, rows());
  }

  void clear_sums() const {
    __builtin_memset(
        b.sums, 0, sizeof(float) * static_cast<std::size_t>(group_.count * b.k_width * b.v_width));
  }

  const LinearAttention& shape_;
  const Group& group_;
  const Operands<T>& x_;
  std::int64_t time_ = 0;
  std::int64_t head_ = 0;
};

void copy_state(const float* from, std::int64_t from_stride, float* to, std::int64_t to_stride,
                const LinearAttention& shape) {
  for (std::int64_t i = 0; i < shape.key_dim; ++i) {
    for (std::int64_t j = 0; j < shape.value_dim; ++j) {
      to[i * to_stride + j] = from[i * from_stride + j];
    }
  }
}

void copy_transposed(const float* from, float* to, std::int64_t to_stride,
                     const LinearAttention& shape) {
  for (std::int64_t i = 0; i < shape.key_dim; ++i) {
    for (std::int64_t j = 0; j < shape.value_dim; ++j) {
      to[j * to_stride + i] = from[i * shape.value_dim + j];
    }
  }
}

// O = Q S + tril(Q K^T) V of a chunk whose keys and values are packed.
template <typename T>
void make_output(const LinearAttention& shape, const Chunks<T>& c, bool sum_is_zero) {
  const Buffers& b = c.b;
  c.pack_queries();
  c.transpose_keys();
  c.make_scores();
  if (!sum_is_zero) {
    c.template multiply<Part::all>(Left{b.q, b.k_width}, shape.key_dim, c.sum(), b.v_width,
                                   b.v_result, false);
  }
  c.template multiply<Part::left_lower>(Left{b.scores, kChunk}, c.rows(), b.v, b.v_width,
                                        b.v_result, !sum_is_zero);
}

template <typename T>
void forward_group(const LinearAttention& shape, const Group& group, const Operands<T>& x,
                   const Heads<T>& out, float* state) {
  Chunks<T> c(shape, group, x);
  const Buffers& b = c.b;
  const auto own_state = [&] { return state + c.head() * shape.key_dim * shape.value_dim; };
  c.forward([&] {
    if (c.first() && state != nullptr) {
      copy_state(own_state(), shape.value_dim, c.sum(), b.v_width, shape);
    }
    c.pack_keys();
    c.pack_values();
    if (out.data != nullptr) {
      make_output(shape, c, c.first() && state == nullptr);
      c.put_values(b.v_result, out);
    }
    if (!c.last() || state != nullptr) {
      product<Part::all>(Transposed{b.k, b.k_width}, b.v, b.v_width, c.sum(), b.v_width,
                         shape.key_dim, b.v_width, c.rows(), true);
    }
    if (c.last() && state != nullptr) {
      copy_state(c.sum(), b.v_width, own_state(), shape.value_dim, shape);
    }
  });
}

// d(q), from the front: it needs the sums before each chunk, here of v k^T.
template <typename T>
void backward_queries(const LinearAttention& shape, Chunks<T>& c, const Operands<T>& x,
                      const Heads<T>& d_q, double* d_theta, const float* before) {
  const Buffers& b = c.b;
  c.forward([&] {
    const bool sum_is_zero = c.first() && before == nullptr;
    if (c.first() && before != nullptr) {
      copy_transposed(before + c.head() * shape.key_dim * shape.value_dim, c.sum(), b.k_width,
                      shape);
    }
    c.pack_keys();
    c.pack_values();
    c.pack_gradient();
    c.transpose_values();
    c.make_d_scores();
    if (!sum_is_zero) {
      c.template multiply<Part::all>(Left{b.gradient, b.v_width}, shape.value_dim, c.sum(),
                                     b.k_width, b.k_result, false);
    }
    c.template multiply<Part::left_lower>(Left{b.d_scores, kChunk}, c.rows(), b.k, b.k_width,
                                          b.k_result, !sum_is_zero);
    c.put_keys(b.k_result, x.q, d_q, d_theta);
    if (!c.last()) {
      product<Part::all>(Transposed{b.v, b.v_width}, b.k, b.k_width, c.sum(), b.k_width,
                         shape.value_dim, b.k_width, c.rows(), true);
    }
  });
}

// d(k) and d(v), from the back: they need the sums of q dO^T after each chunk.
template <typename T>
void backward_keys_values(const LinearAttention& shape, Chunks<T>& c, const Operands<T>& x,
                          const Heads<T>& d_k, const Heads<T>& d_v, double* d_theta,
                          const float* behind) {
  const Buffers& b = c.b;
  c.backward([&] {
    const bool sum_is_zero = c.last() && behind == nullptr;
    if (c.last() && behind != nullptr) {
      copy_state(behind + c.head() * shape.key_dim * shape.value_dim, shape.value_dim, c.sum(),
                 b.v_width, shape);
    }
    c.pack_queries();
    c.pack_keys();
    c.pack_values();
    c.pack_gradient();
    c.transpose_keys();
    c.transpose_values();
    c.make_scores();
    c.make_d_scores();
    if (!sum_is_zero) {
      transpose(c.sum(), b.v_width, shape.key_dim, shape.value_dim, b.sum_transposed, b.k_width);
      c.template multiply<Part::all>(Left{b.v, b.v_width}, shape.value_dim, b.sum_transposed,
                                     b.k_width, b.k_result, false);
      c.template multiply<Part::all>(Left{b.k, b.k_width}, shape.key_dim, c.sum(), b.v_width,
                                     b.v_result, false);
    }
    c.template multiply<Part::left_upper>(Transposed{b.d_scores, kChunk}, c.rows(), b.q, b.k_width,
                                          b.k_result, !sum_is_zero);
    c.put_keys(b.k_result, x.k, d_k, d_theta);
    c.template multiply<Part::left_upper>(Transposed{b.scores, kChunk}, c.rows(), b.gradient,
                                          b.v_width, b.v_result, !sum_is_zero);
    c.put_values(b.v_result, d_v);
    if (!c.first()) {
      product<Part::all>(Transposed{b.q, b.k_width}, b.gradient, b.v_width, c.sum(), b.v_width,
                         shape.key_dim, b.v_width, c.rows(), true);
    }
  });
}

template <typename Body>
void for_groups(const LinearAttention& shape, Body body) {
  for (std::int64_t head = shape.first; head < shape.last;) {
    const std::int64_t first = head % shape.heads;
    const std::int64_t rest = shape.heads - first;
    const Group group{head / shape.heads, first,
                      shape.last - head < rest ? shape.last - head : rest};
    body(group);
    head += group.count;
  }
}

}  // namespace

void linear_attention(const LinearAttention& shape, In q, In k, In v, Out out, float* state) {
  by_type(k.type, [&]<typename T>(T* t) {
    const RowStrides& in = shape.strides;
    const std::int64_t time = shape.time;
    const std::int64_t heads = shape.heads;
    const std::int64_t width = shape.value_dim;
    const Operands<T> x{{as(q, t), in.q, time, heads, shape.key_dim},
                        {as(k, t), in.k, time, heads, shape.key_dim},
                        {as(v, t), in.v, time, heads, width},
                        {}};
    const Heads<T> y{as(out, t), 0, time, heads, width};
    for_groups(shape, [&](const Group& group) { forward_group(shape, group, x, y, state); });
  });
}

void linear_attention_backward(const LinearAttention& shape, In q, In k, In v, In d_out, Out d_q,
                               Out d_k, Out d_v, double* d_theta, const OuterSums& outer) {
  by_type(q.type, [&]<typename T>(T* t) {
    const RowStrides& in = shape.strides;
    const RowStrides& out = shape.gradient_strides;
    const std::int64_t time = shape.time;
    const std::int64_t heads = shape.heads;
    const std::int64_t width = shape.value_dim;
    const Operands<T> x{{as(q, t), in.q, time, heads, shape.key_dim},
                        {as(k, t), in.k, time, heads, shape.key_dim},
                        {as(v, t), in.v, time, heads, width},
                        {as(d_out, t), 0, time, heads, width}};
    const Heads<T> for_q{as(d_q, t), out.q, time, heads, shape.key_dim};
    const Heads<T> for_k{as(d_k, t), out.k, time, heads, shape.key_dim};
    const Heads<T> for_v{as(d_v, t), out.v, time, heads, width};
    for_groups(shape, [&](const Group& group) {
      Chunks<T> chunks(shape, group, x);
      backward_queries(shape, chunks, x, for_q, d_theta, outer.before);
      backward_keys_values(shape, chunks, x, for_k, for_v, d_theta, outer.behind);
    });
  });
}

}  // namespace transnormer::ops::kernels::TRANSNORMER_ISA
