// Attention of one new token a sequence, to a cache or by a running sum.
#include "ops/kernels/rows.h"
#include "ops/kernels/step_functions.h"

namespace transnormer::ops::kernels::TRANSNORMER_ISA {
namespace {

constexpr int kVectors = 4;  // of a row that are worked on together

// Calls body(place, count) for parts of a row, `count` vectors each, as integral constants; the
// last vector may reach behind the row.
template <typename Body>
void for_vectors(std::int64_t width, Body body) {
  std::int64_t place = 0;
  for (; place + kVectors * kLanes <= width; place += kVectors * kLanes) {
    body.template operator()<kVectors>(place);
  }
  for (; place < width; place += kLanes) {
    body.template operator()<1>(place);
  }
}

// scores [keys] = q . K^T; q is padded with zeros.
template <typename T>
void make_scores(const CachedAttention& a, const float* q, const T* keys, float* scores) {
  const std::int64_t stride = a.heads * a.dim;
  for (std::int64_t s = 0; s < a.keys; ++s, keys += stride) {
    F along{};
    for (std::int64_t i = 0; i < a.dim; i += kLanes) {
      along += load(q + i) * load(keys + i, a.dim - i);
    }
    scores[s] = sum(along);
  }
}

// Scores become weights; returns what their sums have to be multiplied with.
float make_weights(const CachedAttention& a, float* scores) {
  const std::int64_t width = (a.keys + kLanes - 1) / kLanes * kLanes;
  for (std::int64_t s = a.keys; s < width; ++s) {
    scores[s] = -__builtin_inff();
  }
  if (!a.softmax) {
    for (std::int64_t s = 0; s < width; s += kLanes) {
      const F v = load(scores + s);
      store(scores + s, v < 0.F ? F{} : v);
    }
    return 1;
  }
  F most = load(scores);
  for (std::int64_t s = kLanes; s < width; s += kLanes) {
    most = maximum(load(scores + s), most);
  }
  const float highest = maximum(most);
  F total{};
  for (std::int64_t s = 0; s < width; s += kLanes) {
    const F weight = exp(load(scores + s) - highest);
    store(scores + s, weight);
    total += weight;
  }
  return 1 / sum(total);
}

template <typename T>
void weigh(const CachedAttention& a, const float* weights, float factor, const T* values, T* y) {
  const std::int64_t stride = a.heads * a.dim;
  for_vectors(a.dim, [&]<int vectors>(std::int64_t place) {
    F sums[vectors] = {};
    for (std::int64_t s = 0; s < a.keys; ++s) {
      const T* row = values + s * stride + place;
      for (int v = 0; v < vectors; ++v) {
        sums[v] += load(row + v * kLanes, a.dim - place - v * kLanes) * weights[s];
      }
    }
    for (int v = 0; v < vectors; ++v) {
      store(y + place + v * kLanes, sums[v] * factor, a.dim - place - v * kLanes);
    }
  });
}

// state = decay state + k v^T; y = factor q . state.
template <typename T>
void update_and_read(const LinearAttention& a, float decay, float factor, const float* q,
                     const float* k, const float* v, float* state, T* y) {
  const std::int64_t width = a.value_dim;
  for_vectors(width, [&]<int vectors>(std::int64_t place) {
    F sums[vectors] = {};
    F value[vectors];
    for (int i = 0; i < vectors; ++i) {
      value[i] = load(v + place + i * kLanes);
    }
    for (std::int64_t row = 0; row < a.key_dim; ++row) {
      float* s = state + row * width + place;
      for (int i = 0; i < vectors; ++i) {
        const std::int64_t n = width - place - i * kLanes;
        const F updated = load(s + i * kLanes, n) * decay + value[i] * k[row];
        store(s + i * kLanes, updated, n);
        sums[i] += updated * q[row];
      }
    }
    for (int i = 0; i < vectors; ++i) {
      store(y + place + i * kLanes, sums[i] * factor, width - place - i * kLanes);
    }
  });
}

// sums += k; gives max(q . sums, floor). q and k are padded with zeros.
float divisor_of(const LinearAttention& a, const float* q, const float* k, float* sums) {
  F along{};
  for (std::int64_t i = 0; i < a.key_dim; i += kLanes) {
    const std::int64_t n = a.key_dim - i;
    const F sum_of_keys = load(sums + i, n) + load(k + i);
    store(sums + i, sum_of_keys, n);
    along += sum_of_keys * load(q + i);
  }
  const float plain = sum(along);
  return plain > a.floor || plain != plain ? plain : a.floor;
}

}  // namespace

void cached_attention(const CachedAttention& a, In q, In keys, In values, Out y) {
  float* const query = a.scratch;
  float* const scores = query + padded(a.dim);
  by_type(q.type, [&]<typename T>(T* t) {
    for (std::int64_t head = a.first; head < a.last; ++head) {
      const std::int64_t batch = head / a.heads;
      const std::int64_t place = head % a.heads * a.dim;
      const std::int64_t cached = batch * a.cache_stride + place;
      pack(Feature::none, Lrpe{}, {0, 1, a.dim},
           Rows<const T>{as(q, t) + batch * a.query_stride + place, 0}, a.scale, query);
      make_scores(a, query, as(keys, t) + cached, scores);
      const float factor = make_weights(a, scores);
      weigh(a, scores, factor, as(values, t) + cached, as(y, t) + head * a.dim);
    }
  });
}

void linear_attention_step(const LinearAttention& a, In q, In k, In v, Out out, float* state) {
  float* const query = a.scratch;
  float* const key = query + padded(a.key_dim);
  float* const value = key + padded(a.key_dim);
  by_type(q.type, [&]<typename T>(T* t) {
    const Heads<const T> queries{as(q, t), a.strides.q, 1, a.heads, a.key_dim};
    const Heads<const T> keys{as(k, t), a.strides.k, 1, a.heads, a.key_dim};
    const Heads<const T> values{as(v, t), a.strides.v, 1, a.heads, a.value_dim};
    for (std::int64_t i = a.first; i < a.last; ++i) {
      const std::int64_t batch = i / a.heads;
      const std::int64_t head = i % a.heads;
      const auto encode = [&](const Lrpe& lrpe) {
        pack(a.feature, lrpe, {0, 1, a.key_dim}, queries.rows(batch, head, 0), 1, query);
        pack(a.feature, lrpe, {0, 1, a.key_dim}, keys.rows(batch, head, 0), 1, key);
      };
      float factor = 1;
      if (a.divides) {
        encode(Lrpe{});
        factor = 1 / divisor_of(a, query, key, a.key_sums + i * a.key_dim);
      }
      if (!a.divides || a.lrpe.rotation != nullptr) {
        encode(a.lrpe);
      }
      pack({0, 1, a.value_dim}, values.rows(batch, head, 0), value);
      update_and_read(a, a.decay == nullptr ? 1.F : a.decay[head], factor, query, key, value,
                      state + i * a.key_dim * a.value_dim, as(out, t) + i * a.value_dim);
    }
  });
}

}  // namespace transnormer::ops::kernels::TRANSNORMER_ISA
