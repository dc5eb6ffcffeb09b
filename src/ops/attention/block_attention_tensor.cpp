#include "ops/attention/block_attention_tensor.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>

#include "ops/runtime/philox_tensor.h"

namespace transnormer::ops {
namespace {

constexpr std::int64_t kScoreBytes = 64LL << 20;  // of one tile
constexpr std::int64_t kMostTokens = 1LL << 24;  // of a sample whose weights are numbered by tokens

// The sequence cut into blocks, and the arithmetic of one tile of queries.
class Tiles {
 public:
  Tiles(const at::Tensor& q, const BlockAttentionOptions& options, const RowsOfTokens* tokens)
      : options_(options),
        tokens_(tokens),
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

  // The keys of a block that queries before `last` may see.
  [[nodiscard]] std::int64_t reach(std::int64_t last) const {
    return options_.visibility.causal ? last : length_;
  }

  // The weights before dropout of scores [batch, heads, blocks, queries, keys] for the queries from
  // `first` on; changes its argument.
  [[nodiscard]] at::Tensor weights(at::Tensor scores, std::int64_t first) const {
    const bool softmax = options_.score == ScoreKind::softmax;
    if (const at::Tensor mask = hidden(first, scores); mask.defined()) {
      scores.masked_fill_(mask, softmax ? -std::numeric_limits<float>::infinity() : 0.F);
    }
    return softmax ? scores.softmax(-1) : scores.relu_();
  }

  [[nodiscard]] bool drops() const { return options_.dropout > 0; }

  // Scaled dropout mask of the weights of queries [first, last); how they are numbered is said at
  // block_attention.
  [[nodiscard]] at::Tensor dropout(std::int64_t first, std::int64_t last,
                                   const at::Tensor& like) const {
    const auto integers = like.options().dtype(at::kLong);
    const at::Tensor sample = tokens_ == nullptr ? at::arange(batch_, integers) : tokens_->sample;
    const at::Tensor head = at::arange(heads_, integers).view({-1, 1, 1, 1});
    const at::Tensor keys = at::arange(reach(last), integers);
    const at::Tensor number =
        tokens_ != nullptr ? tokens_->number.view({batch_, 1, 1, length_})
                           : at::arange(blocks_ * length_, integers).view({1, 1, blocks_, length_});
    const at::Tensor query = number.slice(3, first, last).unsqueeze(-1);
    const at::Tensor element = options_.visibility.plain() && tokens_ == nullptr
                                   ? (query * heads_ + head) * width_ + keys
                                   : (head * kMostTokens + query) * kMostTokens +
                                         number.index_select(3, keys).unsqueeze(3);
    return dropout_mask_of(
        philox_bits_at(sample.view({-1, 1, 1, 1, 1}), element, options_.dropout_key),
        options_.dropout);
  }

 private:
  // True where a query from `first` on does not see the key; undefined where each sees all.
  [[nodiscard]] at::Tensor hidden(std::int64_t first, const at::Tensor& scores) const {
    if (options_.visibility.causal) {
      return at::ones({scores.size(3), scores.size(4)}, scores.options().dtype(at::kBool))
          .triu(first + 1);
    }
    if (tokens_ == nullptr && blocks_ * length_ == time_) {
      return {};
    }
    const auto integers = scores.options().dtype(at::kLong);
    const at::Tensor there =
        tokens_ != nullptr ? tokens_->lengths.view({-1, 1, 1, 1, 1})
                           : (time_ - at::arange(blocks_, integers) * length_).view({-1, 1, 1});
    return at::arange(length_, integers) >= there;
  }

  const BlockAttentionOptions& options_;
  const RowsOfTokens* tokens_;
  std::int64_t batch_;
  std::int64_t time_;
  std::int64_t heads_;
  std::int64_t width_;
  std::int64_t length_;
  std::int64_t blocks_;
  std::int64_t rows_;
};

}  // namespace

at::Tensor tiled_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                         const BlockAttentionOptions& options, const RowsOfTokens* tokens) {
  const Tiles tiles(q, options, tokens);
  const at::Tensor query = tiles.cut(q) * options.scale;
  const at::Tensor key = tiles.cut(k);
  const at::Tensor value = tiles.cut(v);
  at::Tensor out = at::empty_like(value);
  for (std::int64_t first = 0; first < tiles.length(); first += tiles.rows()) {
    const std::int64_t last = std::min(first + tiles.rows(), tiles.length());
    const std::int64_t reach = tiles.reach(last);
    at::Tensor weights =
        tiles.weights(at::matmul(query.slice(3, first, last), key.slice(3, 0, reach).mT()), first);
    if (tiles.drops()) {
      weights *= tiles.dropout(first, last, query);
    }
    out.slice(3, first, last).copy_(at::matmul(weights, value.slice(3, 0, reach)));
  }
  return tiles.join(out, q.scalar_type());
}

BlockAttentionGradients tiled_backward(const at::Tensor& q, const at::Tensor& k,
                                       const at::Tensor& v, const at::Tensor& d_out,
                                       const BlockAttentionOptions& options,
                                       const RowsOfTokens* tokens) {
  const Tiles tiles(q, options, tokens);
  const at::Tensor query = tiles.cut(q) * options.scale;
  const at::Tensor key = tiles.cut(k);
  const at::Tensor value = tiles.cut(v);
  const at::Tensor gradient = tiles.cut(d_out);
  at::Tensor d_query = at::empty_like(query);
  at::Tensor d_key = at::zeros_like(key);
  at::Tensor d_value = at::zeros_like(value);
  for (std::int64_t first = 0; first < tiles.length(); first += tiles.rows()) {
    const std::int64_t last = std::min(first + tiles.rows(), tiles.length());
    const std::int64_t reach = tiles.reach(last);
    const at::Tensor rows = query.slice(3, first, last);
    const at::Tensor keys = key.slice(3, 0, reach);
    const at::Tensor g = gradient.slice(3, first, last);
    const at::Tensor weights = tiles.weights(at::matmul(rows, keys.mT()), first);
    at::Tensor d_weights = at::matmul(g, value.slice(3, 0, reach).mT());
    at::Tensor dropped = weights;
    if (tiles.drops()) {
      const at::Tensor mask = tiles.dropout(first, last, query);
      dropped = weights * mask;
      d_weights *= mask;
    }
    d_value.slice(3, 0, reach).add_(at::matmul(dropped.mT(), g));
    const at::Tensor d_scores = options.score == ScoreKind::softmax
                                    ? weights * (d_weights - (weights * d_weights).sum(-1, true))
                                    : d_weights.masked_fill(weights <= 0, 0);
    d_query.slice(3, first, last).copy_(at::matmul(d_scores, keys) * options.scale);
    d_key.slice(3, 0, reach).add_(at::matmul(d_scores.mT(), rows));
  }
  return {tiles.join(d_query, q.scalar_type()), tiles.join(d_key, k.scalar_type()),
          tiles.join(d_value, v.scalar_type())};
}

}  // namespace transnormer::ops
