#include "ops/attention/linear_attention_tensor.h"

#include <ATen/ATen.h>

namespace transnormer::ops {
namespace {

constexpr std::int64_t kChunk = 64;

at::ScalarType sum_type(const at::Tensor& x) {
  return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

// [batch, time, heads, d] -> [batch, heads, chunks, kChunk, d], zeros behind the end.
at::Tensor chunks(const at::Tensor& x) {
  const std::int64_t time = x.size(1);
  const std::int64_t count = (time + kChunk - 1) / kChunk;
  at::Tensor wide = x.to(sum_type(x)).transpose(1, 2);
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
// fixed order (at::cumsum is not deterministic on CUDA). fading: what a sum is multiplied with on
// its way past a chunk, [heads, 1, 1, 1]; undefined: 1.
at::Tensor sums_before(const at::Tensor& x, const at::Tensor& fading) {
  const std::int64_t count = x.size(2);
  if (count == 1) {
    return at::zeros_like(x);
  }
  const auto past = [&](const at::Tensor& sum) { return fading.defined() ? sum * fading : sum; };
  const std::int64_t pairs = (count + 1) / 2;
  const at::Tensor even = x.slice(2, 0, count, 2);
  at::Tensor both = fading.defined() ? even * fading : even.clone();
  both.narrow(2, 0, count / 2).add_(x.slice(2, 1, count, 2));
  const at::Tensor before = sums_before(both, fading.defined() ? fading * fading : fading);
  at::Tensor result = at::empty_like(x);
  result.slice(2, 0, count, 2).copy_(before);
  result.slice(2, 1, count, 2).copy_((past(before) + even).narrow(2, 0, pairs - count % 2));
  return result;
}

at::Tensor sums_after(const at::Tensor& x, const at::Tensor& fading) {
  return sums_before(x.flip(2), fading).flip(2);
}

// The powers of decay that a sequence of `time` tokens in chunks meets; all undefined without.
struct Fading {
  Fading(const at::Tensor& decay, std::int64_t time) {
    if (!decay.defined()) {
      return;
    }
    const std::int64_t count = (time + kChunk - 1) / kChunk;
    const at::Tensor row = at::arange(kChunk, decay.options().dtype(at::kLong));
    const at::Tensor chunk = at::arange(count, row.options()).unsqueeze(1);
    const at::Tensor rows = (time - chunk * kChunk).clamp_max(kChunk);  // of each chunk
    const auto to = [&](const at::Tensor& exponents) {
      const at::Tensor flat = powers(decay, exponents.reshape({-1}));
      return flat.view({decay.size(0), count, -1, 1});
    };
    inside = powers(decay, (row.unsqueeze(1) - row).clamp_min(0).reshape({-1}))
                 .view({decay.size(0), 1, kChunk, kChunk});
    from_before = to((row + 1).expand({count, kChunk}));
    to_end = to((rows - 1 - row).clamp_min(0));
    past_chunk = powers(decay, at::full({1}, kChunk, row.options()));
    since_start = to(chunk * kChunk);
    until_end = to((time - chunk * kChunk - rows));
    past_last = powers(decay, rows.select(0, count - 1)).squeeze(1);
  }

  [[nodiscard]] static at::Tensor scaled(const at::Tensor& x, const at::Tensor& factors) {
    return factors.defined() ? x * factors : x;
  }

  at::Tensor inside;       // [heads, 1, kChunk, kChunk]: lambda^(i-j)
  at::Tensor from_before;  // [heads, chunks, kChunk, 1]: from the sum before to row i
  at::Tensor to_end;       // .. from row i to the sum behind
  at::Tensor past_chunk;   // [heads, 1, 1, 1]
  at::Tensor since_start;  // [heads, chunks, 1, 1]: from the sequence's start to each chunk's
  at::Tensor until_end;    // .. from each chunk's end to the sequence's
  at::Tensor past_last;    // [heads, 1, 1]: past the last chunk
};

// [batch, time, heads, d] -> [batch, heads, time, d].
at::Tensor by_heads(const at::Tensor& x) {
  return x.to(sum_type(x)).transpose(1, 2);
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

at::Tensor powers(const at::Tensor& decay, const at::Tensor& exponents) {
  return at::pow(decay.to(at::kDouble).unsqueeze(1), exponents.unsqueeze(0))
      .to(at::kFloat)
      .view({decay.size(0), 1, -1, 1});
}

at::Tensor chunked_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const at::Tensor& state, const at::Tensor& decay) {
  const Fading fading(decay, q.size(1));
  const at::Tensor query = chunks(q);
  const at::Tensor key = chunks(k);
  const at::Tensor value = chunks(v);
  const at::Tensor grown = at::matmul(key.mT(), Fading::scaled(value, fading.to_end));
  at::Tensor before = sums_before(grown, fading.past_chunk);
  if (state.defined()) {
    before += Fading::scaled(state.unsqueeze(2), fading.since_start);
    at::Tensor(state).copy_(Fading::scaled(before.select(2, -1), fading.past_last) +
                            grown.select(2, -1));
  }
  const at::Tensor inside = Fading::scaled(at::matmul(query, key.mT()).tril(), fading.inside);
  const at::Tensor outside = Fading::scaled(at::matmul(query, before), fading.from_before);
  return merged(outside + at::matmul(inside, value), q.size(1), result_type(q));
}

LinearAttentionGradients chunked_backward(const at::Tensor& q, const at::Tensor& k,
                                          const at::Tensor& v, const at::Tensor& d_out,
                                          const SumsAround& around, const at::Tensor& decay) {
  const Fading fading(decay, q.size(1));
  const at::Tensor query = chunks(q);
  const at::Tensor key = chunks(k);
  const at::Tensor value = chunks(v);
  const at::Tensor gradient = chunks(d_out);
  const auto scaled = Fading::scaled;
  at::Tensor before =
      sums_before(at::matmul(key.mT(), scaled(value, fading.to_end)), fading.past_chunk);
  at::Tensor after =
      sums_after(at::matmul(query.mT(), scaled(gradient, fading.from_before)), fading.past_chunk);
  if (around.before.defined()) {
    before += scaled(around.before.unsqueeze(2), fading.since_start);
  }
  if (around.behind.defined()) {
    after += scaled(around.behind.unsqueeze(2), fading.until_end);
  }
  const at::Tensor scores = scaled(at::matmul(query, key.mT()).tril(), fading.inside);
  const at::Tensor d_scores = scaled(at::matmul(gradient, value.mT()).tril(), fading.inside);
  const at::Tensor d_q =
      scaled(at::matmul(gradient, before.mT()), fading.from_before) + at::matmul(d_scores, key);
  const at::Tensor d_k =
      scaled(at::matmul(value, after.mT()), fading.to_end) + at::matmul(d_scores.mT(), query);
  const at::Tensor d_v =
      scaled(at::matmul(key, after), fading.to_end) + at::matmul(scores.mT(), gradient);
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
