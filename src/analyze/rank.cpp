#include "analyze/rank.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "analyze/recorder.h"

namespace transnormer {
namespace {

constexpr std::int64_t kLeastWindow = 16;

std::vector<std::int64_t> widths_up_to(std::int64_t width) {
  std::vector<std::int64_t> widths;
  for (std::int64_t w = 1; w < width; w *= 2) {
    widths.push_back(w);
  }
  widths.push_back(width);
  return widths;
}

std::vector<std::int64_t> windows_down_from(std::int64_t n) {
  std::vector<std::int64_t> windows{n};
  while (windows.back() / 2 >= kLeastWindow) {
    windows.push_back(windows.back() / 2);
  }
  return windows;
}

// q k^T has the singular values of the small product of both triangular factors.
Ranks ranks_of_product(const at::Tensor& q, const at::Tensor& k) {
  if (q.size(1) >= q.size(0)) {
    return ranks_of(at::mm(q, k.t()));
  }
  const at::Tensor small =
      at::mm(std::get<1>(at::linalg_qr(q, "r")), std::get<1>(at::linalg_qr(k, "r")).t());
  return ranks_of_singular_values(at::linalg_svdvals(small), q.size(0));
}

void add_rows_by_width(std::vector<RankRow>& rows, std::int64_t layer, std::int64_t head,
                       const at::Tensor& q, const at::Tensor& k, bool softmax) {
  // As the layer scales its scores, whatever part of the features makes them.
  const double scale = 1 / std::sqrt(static_cast<double>(q.size(1)));
  const auto add = [&](std::int64_t width, std::int64_t window, bool masked, const Ranks& ranks) {
    rows.push_back({.layer = layer,
                    .head = head,
                    .key_dim = width,
                    .window = window,
                    .masked = masked,
                    .rank = ranks.rank,
                    .effective_rank = ranks.effective_rank});
  };
  for (const std::int64_t width : widths_up_to(q.size(1))) {
    const at::Tensor some_q = q.narrow(1, 0, width);
    const at::Tensor some_k = k.narrow(1, 0, width);
    add(width, q.size(0), false,
        softmax ? ranks_of(matrix_of(some_q, some_k, true, scale, 0))
                : ranks_of_product(some_q, some_k));
    for (const std::int64_t window : windows_down_from(q.size(0))) {
      add(width, window, true, ranks_of(matrix_of(some_q, some_k, softmax, scale, window)));
    }
  }
}

// Of the weights themselves, where there is nothing that they are products of.
void add_rows_of_weights(std::vector<RankRow>& rows, std::int64_t layer, std::int64_t head,
                         const at::Tensor& weights, bool causal) {
  const at::Tensor& matrix = weights;
  const Ranks ranks = ranks_of(matrix);
  rows.push_back({.layer = layer,
                  .head = head,
                  .key_dim = std::nullopt,
                  .window = matrix.size(0),
                  .masked = causal,
                  .rank = ranks.rank,
                  .effective_rank = ranks.effective_rank});
}

}  // namespace

Ranks ranks_of_singular_values(const at::Tensor& values, std::int64_t n, double precision) {
  const at::Tensor sorted = values.to(at::kDouble).cpu();
  const double largest = sorted.max().item<double>();
  if (!(largest > 0)) {
    return {};
  }
  const double least = largest * static_cast<double>(n) * precision;
  const at::Tensor share = sorted / sorted.sum();
  const at::Tensor some = share.masked_select(share.gt(0));
  return {.rank = sorted.gt(least).sum().item<std::int64_t>(),
          .effective_rank = std::exp(-some.mul(some.log()).sum().item<double>())};
}

Ranks ranks_of(const at::Tensor& matrix) {
  const bool wide = matrix.scalar_type() == at::kDouble;
  return ranks_of_singular_values(
      at::linalg_svdvals(matrix.to(at::kDouble)), matrix.size(0),
      wide ? std::numeric_limits<double>::epsilon() : std::numeric_limits<float>::epsilon());
}

at::Tensor matrix_of(const at::Tensor& q, const at::Tensor& k, bool softmax, double scale,
                     std::int64_t window) {
  at::Tensor scores = at::mm(q, k.t());
  if (softmax) {
    scores.mul_(scale);
  }
  if (window > 0) {
    const at::Tensor seen = at::ones_like(scores, at::kBool).tril().triu(1 - window);
    scores.masked_fill_(seen.logical_not(),
                        softmax ? -std::numeric_limits<double>::infinity() : 0.0);
  }
  return softmax ? scores.softmax(-1) : scores;
}

std::vector<RankRow> measure_rank(const Subject& subject, const Selection& selection) {
  const at::NoGradGuard no_gradients;
  const std::vector<LayerRecord> records =
      record_pass(*subject.model, subject.windows.front(), false);
  std::vector<RankRow> rows;
  for (const std::int64_t layer : selection.layers) {
    const LayerRecord& record = records[static_cast<std::size_t>(layer)];
    const bool known = weighting_of(subject.config.model, layer) != Weighting::other;
    if (!known || record.attentions.size() != 1) {
      const at::Tensor weights = weights_of(*subject.model, layer, record);
      for (const std::int64_t head : selection.heads_of(layer, weights.size(0))) {
        add_rows_of_weights(rows, layer, head, weights[head], subject.config.model.causal);
      }
      continue;
    }
    const AttentionInside& inside = record.attentions.front().inside;
    const bool softmax = weighting_of(subject.config.model, layer) == Weighting::softmax;
    for (const std::int64_t head : selection.heads_of(layer, inside.scored_q.size(2))) {
      const auto of_head = [head](const at::Tensor& tensor) {
        return tensor.select(2, head).squeeze(0).to(at::kDouble).contiguous();
      };
      add_rows_by_width(rows, layer, head, of_head(inside.scored_q), of_head(inside.scored_k),
                        softmax);
    }
  }
  return rows;
}

}  // namespace transnormer
