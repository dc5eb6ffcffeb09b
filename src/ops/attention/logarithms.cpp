#include "ops/attention/logarithms.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "ops/attention/groups.h"
#include "ops/runtime/parallel.h"

namespace transnormer::ops {
namespace {

struct Cuts {
  std::vector<std::int64_t> starts;
  std::vector<float> references;
};

// One head's: k points at its first row.
Cuts cut(const float* k, std::int64_t stride, std::int64_t time, std::int64_t dim,
         const float* before) {
  Cuts cuts;
  std::vector<float> most(static_cast<std::size_t>(dim));
  std::fill(most.begin(), most.end(), std::numeric_limits<float>::lowest());
  if (before != nullptr) {
    std::copy_n(before, dim, most.begin());
  }
  const float* base = nullptr;
  for (std::int64_t t = 0; t < time; ++t) {
    const float* row = k + t * stride;
    bool fits = t > 0 && t - cuts.starts.back() < kernels::kChunk;
    float rise = 0;
    for (std::int64_t i = 0; i < dim; ++i) {
      most[static_cast<std::size_t>(i)] = std::max(most[static_cast<std::size_t>(i)], row[i]);
      rise = fits ? std::max(rise, row[i] - base[i]) : rise;
    }
    fits = fits && rise <= LogarithmChunks::kMostRise;
    if (!fits) {
      cuts.starts.push_back(t);
      cuts.references.insert(cuts.references.end(), most.begin(), most.end());
      base = cuts.references.data() + cuts.references.size() - dim;
    }
  }
  cuts.starts.push_back(time);
  cuts.references.insert(cuts.references.end(), most.begin(), most.end());
  return cuts;
}

}  // namespace

LogarithmChunks::LogarithmChunks(const at::Tensor& k, const at::Tensor& before)
    : batch_(k.size(0)) {
  const std::int64_t heads = k.size(2);
  const std::int64_t dim = k.size(3);
  const std::int64_t count = batch_ * heads;
  std::vector<Cuts> all(static_cast<std::size_t>(count));
  const at::Tensor known = before.defined() ? before.contiguous() : before;
  parallel_for(count, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t head = begin; head < end; ++head) {
      const float* first =
          k.const_data_ptr<float>() + head / heads * k.stride(0) + head % heads * k.stride(2);
      all[static_cast<std::size_t>(head)] =
          cut(first, k.stride(1), k.size(1), dim,
              known.defined() ? known.const_data_ptr<float>() + head * dim : nullptr);
    }
  });
  std::vector<std::int64_t> first{0};
  for (const Cuts& cuts : all) {
    first.push_back(first.back() + std::ssize(cuts.starts));
  }
  first_ = at::tensor(first, at::kLong);
  starts_ = at::empty({first.back()}, at::kLong);
  references_ = at::empty({first.back(), dim}, at::kFloat);
  for (std::size_t head = 0; head < all.size(); ++head) {
    std::copy(all[head].starts.begin(), all[head].starts.end(),
              starts_.mutable_data_ptr<std::int64_t>() + first[head]);
    std::copy(all[head].references.begin(), all[head].references.end(),
              references_.mutable_data_ptr<float>() + first[head] * dim);
  }
}

kernels::Logarithms LogarithmChunks::view() const {
  return {first_.const_data_ptr<std::int64_t>(), starts_.const_data_ptr<std::int64_t>(),
          references_.const_data_ptr<float>()};
}

at::Tensor LogarithmChunks::first_references() const {
  return references_.index_select(0, first_.slice(0, 0, -1)).unflatten(0, {batch_, -1});
}

at::Tensor LogarithmChunks::maxima() const {
  return references_.index_select(0, first_.slice(0, 1) - 1).unflatten(0, {batch_, -1});
}

namespace {

constexpr std::int64_t kChunk = kernels::kChunk;

// [.., count, dim] -> [.., count / (2 half), 2, half, dim].
at::Tensor halves(const at::Tensor& x, std::int64_t half) {
  return x.unflatten(-2, {-1, 2, half});
}

// Of each token from those of its own chunk. All [.., kChunk, dim]; `most`: the maxima of the keys
// up to each. By halves of halves: a query of a second half meets the keys of the first in units of
// the maxima at its end, which it has seen, so that no exponential is above 1.
at::Tensor within_chunks(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                         const at::Tensor& most) {
  at::Tensor sums = (q + k).exp().sum(-1, true) * v;
  for (std::int64_t half = 1; half < kChunk; half *= 2) {
    const at::Tensor units = halves(most, half).select(-3, 0).slice(-2, half - 1, half);
    const at::Tensor keys = (halves(k, half).select(-3, 0) - units).exp();
    const at::Tensor queries = (halves(q, half).select(-3, 1) + units).exp();
    const at::Tensor met =
        at::matmul(at::matmul(queries, keys.mT()), halves(v, half).select(-3, 0));
    sums = sums + at::stack({at::zeros_like(met), met}, -3).flatten(-4, -2);
  }
  return sums;
}

// .. from those of all chunks before. All [batch, heads, chunks, kChunk, dim].
at::Tensor from_chunks_before(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const at::Tensor& most) {
  std::vector<at::Tensor> parts{at::zeros_like(v.select(2, 0))};
  at::Tensor sum;
  at::Tensor units;
  for (std::int64_t chunk = 1; chunk < q.size(2); ++chunk) {
    const at::Tensor own = most.select(2, chunk - 1).slice(-2, kChunk - 1, kChunk);
    const at::Tensor grown =
        at::matmul((k.select(2, chunk - 1) - own).exp().mT(), v.select(2, chunk - 1));
    sum = sum.defined() ? sum * (units - own).exp().mT() + grown : grown;
    units = own;
    parts.push_back(at::matmul((q.select(2, chunk) + units).exp(), sum));
  }
  return at::stack(parts, 2);
}

}  // namespace

at::Tensor exponential_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                 bool causal, bool divides, const at::Tensor& lengths) {
  const std::int64_t time = q.size(1);
  const at::ScalarType type = q.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const auto by_heads = [&](const at::Tensor& x) { return x.to(type).transpose(1, 2); };
  at::Tensor queries = by_heads(q);
  at::Tensor keys = by_heads(k);
  at::Tensor values = by_heads(v);
  if (divides) {
    const at::Tensor ones = at::ones({values.size(0), values.size(1), time, 1}, values.options());
    values = at::cat({values, ones}, -1);
  }
  if (const at::Tensor real = is_token(lengths, time); real.defined()) {
    keys = keys.masked_fill(real.logical_not().view({-1, 1, time, 1}), kNoFeature);
  }
  const at::Tensor most =
      causal ? std::get<0>(at::cummax(keys.detach(), 2)) : keys.detach().amax(2, /*keepdim=*/true);
  if (divides) {
    queries = queries - (queries.detach() + most).amax(-1, true);
  }
  at::Tensor sums;
  if (causal) {
    const std::int64_t count = (time + kChunk - 1) / kChunk;
    const auto chunks = [&](const at::Tensor& x, double filling) {
      return at::constant_pad_nd(x, {0, 0, 0, count * kChunk - time}, filling)
          .unflatten(2, {count, kChunk});
    };
    const at::Tensor last = most.slice(2, time - 1, time);
    const at::Tensor filled = at::cat({most, last.expand({-1, -1, count * kChunk - time, -1})}, 2)
                                  .unflatten(2, {count, kChunk});
    const at::Tensor query = chunks(queries, kNoFeature);
    const at::Tensor key = chunks(keys, kNoFeature);
    const at::Tensor value = chunks(values, 0);
    sums =
        (within_chunks(query, key, value, filled) + from_chunks_before(query, key, value, filled))
            .flatten(2, 3)
            .narrow(2, 0, time);
  } else {
    sums = at::matmul((queries + most).exp(), at::matmul((keys - most).exp().mT(), values));
  }
  if (divides) {
    sums = sums.narrow(-1, 0, v.size(-1)) / sums.narrow(-1, v.size(-1), 1);
  }
  return sums.transpose(1, 2);
}

}  // namespace transnormer::ops
