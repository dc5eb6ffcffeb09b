// Chunked causal linear attention; the formulas stand in linear_attention_tensor.h.
#include "ops/kernels/linear_chunks.h"

namespace transnormer::ops::kernels::TRANSNORMER_ISA {
namespace {

void copy_state(const float* from, std::int64_t from_stride, float* to, std::int64_t to_stride,
                const LinearAttention& shape) {
  for (std::int64_t i = 0; i < shape.key_dim; ++i) {
    for (std::int64_t j = 0; j < shape.value_dim; ++j) {
      to[i * to_stride + j] = from[i * from_stride + j];
    }
  }
}

void copy_row(const float* from, float* to, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    to[i] = from[i];
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
    c.fade_from_before(b.v_result, b.v_width);
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
  const auto own_key_sum = [&] { return shape.key_sums + c.head() * shape.key_dim; };
  const auto take_units = [&](const float* factors) {
    c.scale_rows(c.sum(), b.v_width, shape.key_dim, factors);
    c.scale_columns(c.key_sum(), b.k_width, 1, factors);
  };
  c.forward([&] {
    if (c.first() && state != nullptr) {
      copy_state(own_state(), shape.value_dim, c.sum(), b.v_width, shape);
      if (shape.key_sums != nullptr) {
        copy_row(own_key_sum(), c.key_sum(), shape.key_dim);
      }
    }
    if (c.in_logarithms() && !c.first()) {
      take_units(c.from_chunk_before());
    }
    c.pack_keys();
    c.pack_values();
    if (out.data != nullptr) {
      make_output(shape, c, c.first() && state == nullptr);
      if (shape.divides) {
        c.divide(b.v_result);
      }
      c.put_values(b.v_result, out);
    } else if (shape.divides) {
      c.divide(nullptr);
    }
    if (!c.last() || state != nullptr) {
      c.fade_to_end(b.v, b.v_width);
      c.fade_sum(shape.key_dim, b.v_width);
      product<Part::all>(Transposed{b.k, b.k_width}, b.v, b.v_width, c.sum(), b.v_width,
                         shape.key_dim, b.v_width, c.rows(), true);
    }
    if (c.last() && state != nullptr) {
      if (c.in_logarithms()) {
        take_units(c.change_of_units(c.reference(), c.reference_behind()));
      }
      copy_state(c.sum(), b.v_width, own_state(), shape.value_dim, shape);
      if (shape.key_sums != nullptr) {
        copy_row(c.key_sum(), own_key_sum(), shape.key_dim);
      }
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
    if (c.in_logarithms() && !c.first()) {
      const float* factors = c.from_chunk_before();
      c.scale_columns(c.sum(), b.k_width, shape.value_dim, factors);
      c.scale_columns(c.key_sum(), b.k_width, 1, factors);
    }
    c.pack_keys();
    c.pack_values();
    c.pack_gradient();
    c.transpose_values();
    c.make_d_scores();
    if (!sum_is_zero) {
      c.template multiply<Part::all>(Left{b.gradient, b.v_width}, shape.value_dim, c.sum(),
                                     b.k_width, b.k_result, false);
      c.fade_from_before(b.k_result, b.k_width);
    }
    c.template multiply<Part::left_lower>(Left{b.d_scores, kChunk}, c.rows(), b.k, b.k_width,
                                          b.k_result, !sum_is_zero);
    if (c.in_logarithms()) {
      c.pack_queries();
    }
    c.put_keys(b.k_result, b.q, x.q, d_q, d_theta,
               [&](float* rows) { c.add_queries_of_divisors(rows); });
    if (!c.last()) {
      c.fade_to_end(b.v, b.v_width);
      c.fade_sum(shape.value_dim, b.k_width);
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
    if (c.in_logarithms() && !c.last()) {
      const float* factors = c.from_chunk_behind();
      c.scale_rows(c.sum(), b.v_width, shape.key_dim, factors);
      c.scale_columns(c.key_sum(), b.k_width, 1, factors);
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
      c.fade_to_end(b.k_result, b.k_width);
      c.fade_to_end(b.v_result, b.v_width);
    }
    c.template multiply<Part::left_upper>(Transposed{b.d_scores, kChunk}, c.rows(), b.q, b.k_width,
                                          b.k_result, !sum_is_zero);
    c.put_keys(b.k_result, b.k, x.k, d_k, d_theta,
               [&](float* rows) { c.add_keys_of_divisors(rows); });
    c.template multiply<Part::left_upper>(Transposed{b.scores, kChunk}, c.rows(), b.gradient,
                                          b.v_width, b.v_result, !sum_is_zero);
    c.put_values(b.v_result, d_v);
    if (!c.first()) {
      c.fade_from_before(b.gradient, b.v_width);
      c.fade_sum(shape.key_dim, b.v_width);
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
    const std::int64_t wanted = shape.last - head < rest ? shape.last - head : rest;
    // Where features are logarithms, each head has chunks of its own.
    const Group group{head / shape.heads, first, shape.exponential ? 1 : wanted};
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
