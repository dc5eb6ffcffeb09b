#include "ops/attention/block_attention_tensor.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>

#include "ops/runtime/philox_tensor.h"

namespace transnormer::ops {
namespace {

constexpr std::int64_t kScoreBytes = 64LL << 20;  // of one tile

// The sequence cut into blocks, and the arithmetic of one tile of queries.
class Tiles {
 public:
  Tiles(const at::Tensor& q, const BlockAttentionOptions& options)
      : options_(options),
        batch_(q.size(0)),
        time_(q.size(1)),
        heads_(q.size(2)),
        width_(options.block > 0 ? options.block : time_),
        length_(std::min(width_, time_)),
        blocks_((time_ + length_ - 1) / length_) {
    const std::int64_t row_bytes = batch_ * heads_ * blocks_ * length_ * 4;
    rows_ = std::clamp<std::int64_t>(kScoreBytes / row_bytes, 16, 256);
  }

  [[nodiscard]] std::int64_t rows() const { return rows_; }
  [[nodiscard]] std::int64_t length() const { return length_; }

  // [batch, time, heads, d] -> fp32 [batch, heads, blocks, length, d], zeros behind the end.
  [[nodiscard]] at::Tensor cut(const at::Tensor& x) const {
    at::Tensor wide = x.to(at::kFloat).transpose(1, 2);
    if (blocks_ * length_ != time_) {
      wide = at::constant_pad_nd(wide, {0, 0, 0, blocks_ * length_ - time_});
    }
    return wide.reshape({batch_, heads_, blocks_, length_, x.size(3)});
  }

  [[nodiscard]] at::Tensor join(const at::Tensor& x, at::ScalarType type) const {
    return x.flatten(2, 3).narrow(2, 0, time_).transpose(1, 2).to(type).contiguous();
  }

  // True where a query of rows [first, last) does not see the key.
  [[nodiscard]] at::Tensor hidden(std::int64_t first, std::int64_t last,
                                  const at::Tensor& like) const {
    return at::ones({last - first, last}, like.options().dtype(at::kBool)).triu(first + 1);
  }

  // The weights before dropout of scores [.., rows, keys]; changes its argument.
  [[nodiscard]] at::Tensor weights(at::Tensor scores, const at::Tensor& mask) const {
    if (options_.score == ScoreKind::softmax) {
      return scores.masked_fill_(mask, -std::numeric_limits<float>::infinity()).softmax(-1);
    }
    return scores.masked_fill_(mask, 0).relu_();
  }

  [[nodiscard]] bool drops() const { return options_.dropout > 0; }

  // Scaled dropout mask of the same tile; elements are numbered (head * time + t) * width + s.
  [[nodiscard]] at::Tensor dropout(std::int64_t first, std::int64_t last,
                                   const at::Tensor& like) const {
    const auto integers = like.options().dtype(at::kLong);
    const at::Tensor sample = at::arange(batch_, integers).view({-1, 1, 1, 1, 1});
    const at::Tensor head = at::arange(heads_, integers).view({-1, 1, 1, 1});
    const at::Tensor block = at::arange(blocks_, integers).view({-1, 1, 1});
    const at::Tensor row = at::arange(first, last, integers).view({-1, 1});
    const at::Tensor key = at::arange(last, integers);
    const at::Tensor element = (head * time_ + block * length_ + row) * width_ + key;
    return dropout_mask_of(philox_bits_at(sample, element, options_.dropout_key), options_.dropout);
  }

 private:
  const BlockAttentionOptions& options_;
  std::int64_t batch_;
  std::int64_t time_;
  std::int64_t heads_;
  std::int64_t width_;
  std::int64_t length_;
  std::int64_t blocks_;
  std::int64_t rows_;
};

at::Tensor transposed(const at::Tensor& x) {
  return x.transpose(-1, -2);
}

}  // namespace

at::Tensor tiled_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                         const BlockAttentionOptions& options) {
  const Tiles tiles(q, options);
  const at::Tensor query = tiles.cut(q) * options.scale;
  const at::Tensor key = tiles.cut(k);
  const at::Tensor value = tiles.cut(v);
  at::Tensor out = at::empty_like(value);
  for (std::int64_t first = 0; first < tiles.length(); first += tiles.rows()) {
    const std::int64_t last = std::min(first + tiles.rows(), tiles.length());
    at::Tensor weights =
        tiles.weights(at::matmul(query.slice(3, first, last), transposed(key.slice(3, 0, last))),
                      tiles.hidden(first, last, query));
    if (tiles.drops()) {
      weights *= tiles.dropout(first, last, query);
    }
    out.slice(3, first, last).copy_(at::matmul(weights, value.slice(3, 0, last)));
  }
  return tiles.join(out, q.scalar_type());
}

BlockAttentionGradients tiled_backward(const at::Tensor& q, const at::Tensor& k,
                                       const at::Tensor& v, const at::Tensor& d_out,
                                       const BlockAttentionOptions& options) {
  const Tiles tiles(q, options);
  const at::Tensor query = tiles.cut(q) * options.scale;
  const at::Tensor key = tiles.cut(k);
  const at::Tensor value = tiles.cut(v);
  const at::Tensor gradient = tiles.cut(d_out);
  at::Tensor d_query = at::empty_like(query);
  at::Tensor d_key = at::zeros_like(key);
  at::Tensor d_value = at::zeros_like(value);
  for (std::int64_t first = 0; first < tiles.length(); first += tiles.rows()) {
    const std::int64_t last = std::min(first + tiles.rows(), tiles.length());
    const at::Tensor rows = query.slice(3, first, last);
    const at::Tensor keys = key.slice(3, 0, last);
    const at::Tensor g = gradient.slice(3, first, last);
    const at::Tensor weights =
        tiles.weights(at::matmul(rows, transposed(keys)), tiles.hidden(first, last, query));
    at::Tensor d_weights = at::matmul(g, transposed(value.slice(3, 0, last)));
    at::Tensor dropped = weights;
    if (tiles.drops()) {
      const at::Tensor mask = tiles.dropout(first, last, query);
      dropped = weights * mask;
      d_weights *= mask;
    }
    d_value.slice(3, 0, last).add_(at::matmul(transposed(dropped), g));
    const at::Tensor d_scores = options.score == ScoreKind::softmax
                                    ? weights * (d_weights - (weights * d_weights).sum(-1, true))
                                    : d_weights.masked_fill(weights <= 0, 0);
    d_query.slice(3, first, last).copy_(at::matmul(d_scores, keys) * options.scale);
    d_key.slice(3, 0, last).add_(at::matmul(transposed(d_scores), rows));
  }
  return {tiles.join(d_query, q.scalar_type()), tiles.join(d_key, k.scalar_type()),
          tiles.join(d_value, v.scalar_type())};
}

}  // namespace transnormer::ops
