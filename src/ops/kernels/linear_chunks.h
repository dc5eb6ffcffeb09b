// The chunks of linear attention as its kernel walks them: their rows packed into buffers, and what
// decay, division and logarithms of features do to them.
#pragma once

#include "ops/kernels/functions.h"
#include "ops/kernels/matrix.h"
#include "ops/kernels/rows.h"

namespace transnormer::ops::kernels::TRANSNORMER_ISA {

// The buffers of one chunk of one head: its rows in fp32, two transposes and scores; and the
// running sums of all heads.
struct Buffers {
  Buffers(const LinearAttention& shape, std::int64_t heads)
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
    q_feature = take(kChunk * k_width);
    k_feature = take(kChunk * k_width);
    slopes = take(kChunk);
    falling = take(2 * kChunk);
    rising = take(2 * kChunk);
    sum_transposed = take(k_width * v_width);
    units = take(k_width);
    key_sums = take(heads * k_width);
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
  float* scores;     // tril(Q K^T)
  float* d_scores;   // tril(dO V^T)
  float* q_feature;  // before LRPE, where the output is divided and there is one
  float* k_feature;
  float* slopes;          // of the divisors: their gradients, one for each row
  float* falling;         // decay^(kChunk - 1 - i), then zeros
  float* rising;          // decay^i, i up to kChunk
  float* sum_transposed;  // [value_dim, k_width]
  float* units;           // factors of the key features
  float* key_sums;        // [heads, k_width]
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
      : b(shape, group.count), shape_(shape), group_(group), x_(x) {
    clear_sums();
  }

  // Calls body() for each head of each chunk, from the front.
  template <typename Body>
  void forward(Body body) {
    for (chunk_ = 0; chunk_ < chunks(); ++chunk_) {
      heads_at(body);
    }
    clear_sums();
  }

  // .. or from the back.
  template <typename Body>
  void backward(Body body) {
    for (chunk_ = chunks() - 1; chunk_ >= 0; --chunk_) {
      heads_at(body);
    }
    clear_sums();
  }

  [[nodiscard]] bool first() const { return time_ == 0; }
  [[nodiscard]] bool last() const { return time_ + rows() == shape_.time; }
  [[nodiscard]] std::int64_t rows() const { return rows_; }
  [[nodiscard]] std::int64_t head() const { return group_.batch * shape_.heads + number(); }

  // The sum that this head carries from chunk to chunk.
  [[nodiscard]] float* sum() const { return b.sums + head_ * b.k_width * b.v_width; }
  // .. and that of the keys' features.
  [[nodiscard]] float* key_sum() const { return b.key_sums + head_ * b.k_width; }

  void pack_queries() const {
    if (in_logarithms()) {
      exponentials_of_queries(here(x_.q));
    } else {
      pack(shape_.feature, shape_.lrpe, keys(), here(x_.q), 1, b.q);
    }
  }
  void pack_keys() const {
    if (in_logarithms()) {
      exponentials_of_keys(here(x_.k));
    } else {
      pack(shape_.feature, shape_.lrpe, keys(), here(x_.k), 1, b.k);
    }
  }
  void pack_values() const { pack(values(), here(x_.v), b.v); }
  void pack_gradient() const {
    pack(values(), here(x_.gradient), b.gradient);
    if (shape_.divides) {
      divide_gradient();
    }
  }

  // The features that divisors are made of: where there is no LRPE those that are packed already.
  [[nodiscard]] const float* query_features() const {
    return features(here(x_.q), b.q, b.q_feature);
  }
  [[nodiscard]] const float* key_features() const { return features(here(x_.k), b.k, b.k_feature); }

  [[nodiscard]] bool in_logarithms() const { return shape_.exponential; }
  [[nodiscard]] const float* reference() const { return reference_at(chunk_); }
  // exp(reference of one chunk - that of another), of each key feature.
  const float* change_of_units(const float* from, const float* to) const {
    for (std::int64_t i = 0; i < shape_.key_dim; i += kLanes) {
      const std::int64_t n = shape_.key_dim - i;
      store(b.units + i, exp(load(from + i, n) - load(to + i, n)), n);
    }
    return b.units;
  }
  // From the units of the chunk before into those of this one; from the one behind, walking back.
  [[nodiscard]] const float* from_chunk_before() const {
    return change_of_units(reference_at(chunk_ - 1), reference());
  }
  [[nodiscard]] const float* from_chunk_behind() const {
    return change_of_units(reference(), reference_at(chunk_ + 1));
  }
  // Of all keys.
  [[nodiscard]] const float* reference_behind() const { return reference_at(chunk_ + 1); }
  [[nodiscard]] const float* reference_at(std::int64_t chunk) const {
    return shape_.logarithms.references +
           (shape_.logarithms.first[head()] + chunk) * shape_.key_dim;
  }

  // Row i of x times factors[i].
  void scale_rows(float* x, std::int64_t width, std::int64_t count, const float* factors) const {
    for (std::int64_t i = 0; i < count; ++i) {
      float* row = x + i * width;
      for (std::int64_t j = 0; j < width; j += kLanes) {
        store(row + j, load(row + j) * factors[i]);
      }
    }
  }
  // Column j of x times factors[j].
  void scale_columns(float* x, std::int64_t width, std::int64_t count, const float* factors) const {
    for (std::int64_t i = 0; i < count; ++i) {
      float* row = x + i * width;
      for (std::int64_t j = 0; j < shape_.key_dim; j += kLanes) {
        const std::int64_t n = shape_.key_dim - j;
        store(row + j, load(row + j, n) * load(factors + j, n), n);
      }
    }
  }

  // What decay does: to the scores, rows of what comes from the sum before, rows on their way into
  // the next sum, and the sum itself.
  [[nodiscard]] bool decays() const { return shape_.decay != nullptr; }
  void fade_scores(float* scores) const {
    for (std::int64_t i = 0; decays() && i < rows(); ++i) {
      const float* factors = b.falling + (kChunk - 1 - i);
      float* row = scores + i * kChunk;
      for (std::int64_t j = 0; j <= i; j += kLanes) {
        store(row + j, load(row + j) * load(factors + j));
      }
    }
  }
  void fade_from_before(float* x, std::int64_t width) const {
    if (decays()) {
      scale_rows(x, width, rows(), b.rising + 1);
    }
  }
  void fade_to_end(float* x, std::int64_t width) const {
    if (decays()) {
      scale_rows(x, width, rows(), b.falling + (kChunk - rows()));
    }
  }
  void fade_sum(std::int64_t lines, std::int64_t width) const {
    if (decays()) {
      const float factor = b.rising[rows()];
      float* x = sum();
      for (std::int64_t i = 0; i < lines * width; i += kLanes) {
        store(x + i, load(x + i) * factor);
      }
    }
  }

  // Divides the result by max(q . sum of k, floor), row by row, and keeps the divisors. Without a
  // result, the sum of the keys only.
  void divide(float* result) const {
    const float* q = result == nullptr ? nullptr : query_features();
    const float* k = key_features();
    float* z = key_sum();
    for (std::int64_t i = 0; i < rows(); ++i, k += b.k_width) {
      F along{};
      for (std::int64_t j = 0; j < b.k_width; j += kLanes) {
        const F sum_of_keys = load(z + j) + load(k + j);
        store(z + j, sum_of_keys);
        if (q != nullptr) {
          along += sum_of_keys * load(q + i * b.k_width + j);
        }
      }
      if (q == nullptr) {
        continue;
      }
      const float plain = TRANSNORMER_ISA::sum(along);
      const float divisor = plain > shape_.floor || plain != plain ? plain : shape_.floor;
      if (shape_.divisors != nullptr) {
        *divisor_at(i) = divisor;
      }
      float* row = result + i * b.v_width;
      for (std::int64_t j = 0; j < b.v_width; j += kLanes) {
        store(row + j, load(row + j) / divisor);
      }
    }
  }

  // What the divisors ask of the queries' features, d_i sum of k up to i, and (from the back) of
  // the keys', the sum of d_i q from i on; d_i as divide_gradient() left it.
  void add_queries_of_divisors(float* result) const {
    const float* k = key_features();
    float* z = key_sum();
    for (std::int64_t i = 0; i < rows(); ++i) {
      const float slope = b.slopes[i];
      for (std::int64_t j = 0; j < b.k_width; j += kLanes) {
        const std::int64_t at = i * b.k_width + j;
        const F sum_of_keys = load(z + j) + load(k + at);
        store(z + j, sum_of_keys);
        store(result + at, load(result + at) + sum_of_keys * slope);
      }
    }
  }
  void add_keys_of_divisors(float* result) const {
    const float* q = query_features();
    float* z = key_sum();
    for (std::int64_t i = rows() - 1; i >= 0; --i) {
      const float slope = b.slopes[i];
      for (std::int64_t j = 0; j < b.k_width; j += kLanes) {
        const std::int64_t at = i * b.k_width + j;
        const F sum_of_queries = load(z + j) + load(q + at) * slope;
        store(z + j, sum_of_queries);
        store(result + at, load(result + at) + sum_of_queries);
      }
    }
  }

  void transpose_keys() const {
    transpose(b.k, b.k_width, rows(), shape_.key_dim, b.k_transposed, kChunk);
  }
  void transpose_values() const {
    transpose(b.v, b.v_width, rows(), shape_.value_dim, b.v_transposed, kChunk);
  }

  // tril(Q K^T), tril(dO V^T): by the transposed right factors.
  void make_scores() const {
    lower_scores(b.q, b.k_width, shape_.key_dim, b.k_transposed, b.scores);
    fade_scores(b.scores);
  }
  void make_d_scores() const {
    lower_scores(b.gradient, b.v_width, shape_.value_dim, b.v_transposed, b.d_scores);
    fade_scores(b.d_scores);
  }

  // result = left * right, or result += left * right; `n` is the width of right and result.
  template <Part part, typename A>
  void multiply(A left, std::int64_t depth, const float* right, std::int64_t n, float* result,
                bool add) const {
    product<part>(left, right, n, result, n, rows(), n, depth, add);
  }

  void put_values(const float* from, const Heads<T>& to) const { unpack(values(), from, here(to)); }
  // The gradient of the rows before their encoding. add_divisors(rows): adds what divisors ask of
  // the features. exponentials: those that stand for the rows, where these are logarithms.
  template <typename Add>
  void put_keys(float* from, const float* exponentials, const Heads<const T>& x,
                const Heads<T>& d_x, double* d_theta, Add add_divisors) const {
    double* share = d_theta == nullptr ? nullptr : d_theta + head() * (shape_.key_dim / 2);
    Rows<const float> gradient{from, b.k_width};
    if (!shape_.divides && !in_logarithms()) {
      return encode_backward(shape_.feature, shape_.lrpe, keys(), here(x), gradient, 1, here(d_x),
                             share);
    }
    if (shape_.lrpe.rotation != nullptr) {  // back to the features, which the divisors are made of
      float* const feature = b.q_feature;
      pack(shape_.feature, Lrpe{}, keys(), here(x), 1, feature);
      encode_backward(Feature::none, shape_.lrpe, keys(), Rows<const float>{feature, b.k_width},
                      gradient, 1, Rows<float>{from, b.k_width}, share);
    }
    if (shape_.divides) {
      add_divisors(from);
    }
    if (in_logarithms()) {
      for (std::int64_t i = 0; i < rows() * b.k_width; i += kLanes) {
        store(from + i, load(from + i) * load(exponentials + i));
      }
    }
    encode_backward(shape_.feature, Lrpe{}, keys(), here(x), gradient, 1, here(d_x), nullptr);
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

  // Those of the group's heads, which are one where features are logarithms.
  [[nodiscard]] std::int64_t chunks() const {
    if (in_logarithms()) {
      const std::int64_t* first =
          shape_.logarithms.first + group_.batch * shape_.heads + group_.first;
      return first[1] - first[0] - 1;
    }
    return (shape_.time + kChunk - 1) / kChunk;
  }

  template <typename Body>
  void heads_at(Body body) {
    for (head_ = 0; head_ < group_.count; ++head_) {
      if (in_logarithms()) {
        const std::int64_t* start =
            shape_.logarithms.starts + shape_.logarithms.first[head()] + chunk_;
        time_ = start[0];
        rows_ = start[1] - start[0];
      } else {
        time_ = chunk_ * kChunk;
        rows_ = shape_.time - time_ < kChunk ? shape_.time - time_ : kChunk;
      }
      if (decays()) {
        make_powers();
      }
      body();
    }
  }

  void make_powers() const {
    const double decay = shape_.decay[number()];
    double power = 1;
    for (std::int64_t i = 0; i < kChunk; ++i, power *= decay) {
      b.rising[i] = static_cast<float>(power);
      b.falling[kChunk - 1 - i] = b.rising[i];
      b.falling[kChunk + i] = 0;
    }
    b.rising[kChunk] = static_cast<float>(power);
  }

  // e^(k - reference).
  void exponentials_of_keys(const Rows<const T>& from) const {
    const float* base = reference();
    for (std::int64_t i = 0; i < rows(); ++i) {
      float* to = b.k + i * b.k_width;
      for (std::int64_t j = 0; j < shape_.key_dim; j += kLanes) {
        const std::int64_t n = shape_.key_dim - j;
        store(to + j, exp(load(from.row(i) + j, n) - load(base + j, n)), n);
      }
      clear_padding(to);
    }
  }
  // e^(q + reference), of which a divided output may lose the largest factor.
  void exponentials_of_queries(const Rows<const T>& from) const {
    const float* base = reference();
    for (std::int64_t i = 0; i < rows(); ++i) {
      float* to = b.q + i * b.k_width;
      float most = 0;
      for (std::int64_t j = 0; j < shape_.key_dim; j += kLanes) {
        const std::int64_t n = shape_.key_dim - j;
        store(to + j, load(from.row(i) + j, n) + load(base + j, n), n);
      }
      if (shape_.divides) {
        most = to[0];
        for (std::int64_t j = 1; j < shape_.key_dim; ++j) {
          most = to[j] > most ? to[j] : most;
        }
      }
      for (std::int64_t j = 0; j < shape_.key_dim; j += kLanes) {
        const std::int64_t n = shape_.key_dim - j;
        store(to + j, exp(load(to + j, n) - most), n);
      }
      clear_padding(to);
    }
  }
  void clear_padding(float* row) const {
    for (std::int64_t j = shape_.key_dim; j < b.k_width; ++j) {
      row[j] = 0;
    }
  }

  [[nodiscard]] const float* features(const Rows<const T>& from, const float* packed,
                                      float* own) const {
    if (shape_.lrpe.rotation == nullptr) {
      return packed;
    }
    pack(shape_.feature, Lrpe{}, keys(), from, 1, own);
    return own;
  }

  [[nodiscard]] float* divisor_at(std::int64_t row) const {
    return shape_.divisors + (group_.batch * shape_.time + time_ + row) * shape_.heads + number();
  }

  // The gradient of the output becomes that of the sum before its division; that of the divisor
  // is its slope.
  void divide_gradient() const {
    const Rows<const T> output = Heads<const T>(as(shape_.output, static_cast<T*>(nullptr)), 0,
                                                shape_.time, shape_.heads, shape_.value_dim)
                                     .rows(group_.batch, number(), time_);
    for (std::int64_t i = 0; i < rows(); ++i) {
      const float divisor = *divisor_at(i);
      float* gradient = b.gradient + i * b.v_width;
      F along{};
      for (std::int64_t j = 0; j < shape_.value_dim; j += kLanes) {
        const std::int64_t n = shape_.value_dim - j;
        along += load(output.row(i) + j, n) * load(gradient + j, n);
      }
      for (std::int64_t j = 0; j < b.v_width; j += kLanes) {
        store(gradient + j, load(gradient + j) / divisor);
      }
      b.slopes[i] = divisor > shape_.floor ? -TRANSNORMER_ISA::sum(along) / divisor : 0.F;
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
    __builtin_memset(b.key_sums, 0,
                     sizeof(float) * static_cast<std::size_t>(group_.count * b.k_width));
  }

  const LinearAttention& shape_;
  const Group& group_;
  const Operands<T>& x_;
  std::int64_t chunk_ = 0;
  std::int64_t time_ = 0;
  std::int64_t rows_ = 0;
  std::int64_t head_ = 0;
};

}  // namespace transnormer::ops::kernels::TRANSNORMER_ISA
