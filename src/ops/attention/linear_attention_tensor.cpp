#include "ops/attention/linear_attention_tensor.h"

#include <ATen/ATen.h>

namespace transnormer::ops {
namespace {

constexpr std::int64_t kChunk = 64;

// [batch, time, heads, d] -> fp32 [batch, heads, chunks, kChunk, d], zeros behind the end.
at::Tensor chunks(const at::Tensor& x) {
  const std::int64_t time = x.size(1);
  const std::int64_t count = (time + kChunk - 1) / kChunk;
  at::Tensor wide = x.to(at::kFloat).transpose(1, 2);
  if (count * kChunk != time) {
    wide = at::constant_pad_nd(wide, {0, 0, 0, count * kChunk - time});
  }
  return wide.reshape({x.size(0), x.size(2), count, kChunk, x.size(3)});
}

// The inverse of chunks: dense, [batch, time, heads, d] of `type`.
at::Tensor merged(const at::Tensor& chunked, std::int64_t time, at::ScalarType type) {
  return chunked.flatten(2, 3).narrow(2, 0, time).transpose(1, 2).to(type).contiguous();
}

// Sums over all chunks before each one, along dimension 2, in a logarithmic number of steps and a
// fixed order (at::cumsum is not deterministic on CUDA).
at::Tensor sums_before(const at::Tensor& x) {
  const std::int64_t count = x.size(2);
  if (count == 1) {
    return at::zeros_like(x);
  }
  const std::int64_t pairs = (count + 1) / 2;
  const at::Tensor even = x.slice(2, 0, count, 2);
  at::Tensor both = even.clone();
  both.narrow(2, 0, count / 2).add_(x.slice(2, 1, count, 2));
  const at::Tensor before = sums_before(both);
  at::Tensor result = at::empty_like(x);
  result.slice(2, 0, count, 2).copy_(before);
  result.slice(2, 1, count, 2).copy_((before + even).narrow(2, 0, pairs - count % 2));
  return result;
}

at::Tensor sums_after(const at::Tensor& x) {
  return sums_before(x.flip(2)).flip(2);
}

// [batch, time, heads, d] -> fp32 [batch, heads, time, d].
at::Tensor by_heads(const at::Tensor& x) {
  return x.to(at::kFloat).transpose(1, 2);
}

// The inverse: dense, of `type`.
at::Tensor by_times(const at::Tensor& x, at::ScalarType type) {
  return x.transpose(1, 2).to(type).contiguous();
}

// Of the output for queries of this type.
at::ScalarType result_type(const at::Tensor& q) {
  return q.scalar_type() == at::kHalf ? at::kFloat : q.scalar_type();
}

}  // namespace

at::Tensor chunked_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const at::Tensor& state) {
  const at::Tensor query = chunks(q);
  const at::Tensor key = chunks(k);
  const at::Tensor value = chunks(v);
  const at::Tensor grown = at::matmul(key.mT(), value);
  at::Tensor before = sums_before(grown);
  if (state.defined()) {
    before += state.unsqueeze(2);
    at::Tensor(state).copy_(before.select(2, -1) + grown.select(2, -1));
  }
  const at::Tensor inside = at::matmul(query, key.mT()).tril();
  return merged(at::matmul(query, before) + at::matmul(inside, value), q.size(1), result_type(q));
}

LinearAttentionGradients chunked_backward(const at::Tensor& q, const at::Tensor& k,
                                          const at::Tensor& v, const at::Tensor& d_out,
                                          const SumsAround& around) {
  const at::Tensor query = chunks(q);
  const at::Tensor key = chunks(k);
  const at::Tensor value = chunks(v);
  const at::Tensor gradient = chunks(d_out);
  at::Tensor before = sums_before(at::matmul(key.mT(), value));
  at::Tensor after = sums_after(at::matmul(query.mT(), gradient));
  if (around.before.defined()) {
    before += around.before.unsqueeze(2);
  }
  if (around.behind.defined()) {
    after += around.behind.unsqueeze(2);
  }
  const at::Tensor scores = at::matmul(query, key.mT()).tril();
  const at::Tensor d_scores = at::matmul(gradient, value.mT()).tril();
  const at::Tensor d_q = at::matmul(gradient, before.mT()) + at::matmul(d_scores, key);
  const at::Tensor d_k = at::matmul(value, after.mT()) + at::matmul(d_scores.mT(), query);
  const at::Tensor d_v = at::matmul(key, after) + at::matmul(scores.mT(), gradient);
  return {merged(d_q, q.size(1), q.scalar_type()), merged(d_k, q.size(1), k.scalar_type()),
          merged(d_v, q.size(1), v.scalar_type())};
}

at::Tensor sum_of_times(const at::Tensor& a, const at::Tensor& b) {
  return at::matmul(by_heads(a).mT(), by_heads(b));
}

at::Tensor bidirectional_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  const at::Tensor sum = sum_of_times(k, v);
  return by_times(at::matmul(by_heads(q), sum), result_type(q));
}

LinearAttentionGradients bidirectional_backward(const at::Tensor& q, const at::Tensor& k,
                                                const at::Tensor& v, const at::Tensor& d_out) {
  const at::Tensor key = by_heads(k);
  const at::Tensor value = by_heads(v);
  const at::Tensor gradient = by_heads(d_out);
  const at::Tensor sum = sum_of_times(k, v);
  const at::Tensor d_sum = sum_of_times(q, d_out);
  return {by_times(at::matmul(gradient, sum.mT()), q.scalar_type()),
          by_times(at::matmul(value, d_sum.mT()), k.scalar_type()),
          by_times(at::matmul(key, d_sum), v.scalar_type())};
}

}  // namespace transnormer::ops
