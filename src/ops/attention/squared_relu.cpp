#include "ops/attention/squared_relu.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <limits>

#include "ops/runtime/carry.h"

namespace transnormer::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Queries [first, last) and the keys up to `reach`.
struct Tile {
  std::int64_t first;
  std::int64_t last;
  std::int64_t reach;
  [[nodiscard]] std::int64_t queries() const { return last - first; }
};

class Tiles {
 public:
  Tiles(const at::Tensor& q, const at::Tensor& k, const at::Tensor& offsets,
        const SquaredReluOptions& options)
      : q_(q), k_(k), offsets_(offsets), options_(options), behind_(k.size(1) - q.size(1)) {}

  template <typename Body>
  void each(const Body& body) const {
    const std::int64_t queries = q_.size(1);
    for (std::int64_t first = 0; first < queries; first += options_.tile) {
      const std::int64_t last = std::min(first + options_.tile, queries);
      body(Tile{first, last, options_.causal ? behind_ + last : k_.size(1)});
    }
  }

  // The rectified scores of a tile, [rows, queries, reach].
  [[nodiscard]] at::Tensor rectified(const Tile& tile) const {
    // Row r of the unfolded offsets is that of query last - 1 - r.
    at::Tensor offset = offsets_.narrow(0, start(tile), tile.queries() + tile.reach - 1)
                            .unfold(0, tile.reach, 1)
                            .flip(0);
    if (options_.causal) {
      const at::Tensor later =
          at::ones({tile.queries(), tile.reach}, offset.options().dtype(at::kBool))
              .triu(behind_ + tile.first + 1);
      offset.masked_fill_(later, -std::numeric_limits<float>::infinity());
    }
    return at::baddbmm(offset, q_.narrow(1, tile.first, tile.queries()),
                       k_.narrow(1, 0, tile.reach).mT(), 1, options_.scale)
        .relu_();
  }

  // Adds to the offsets' gradient that of a tile's scores, [queries, reach]: sums over diagonals.
  void add_offsets(const at::Tensor& gradient, const at::Tensor& scores, const Tile& tile) const {
    const std::int64_t width = tile.queries() + tile.reach - 1;
    // One more column each row shifts row r by r places.
    const at::Tensor shifted = at::constant_pad_nd(scores.flip(0), {0, tile.queries()})
                                   .view({-1})
                                   .narrow(0, 0, tile.queries() * width)
                                   .view({tile.queries(), width});
    gradient.narrow(0, start(tile), width).add_(shifted.sum(0));
  }

 private:
  [[nodiscard]] std::int64_t start(const Tile& tile) const { return q_.size(1) - tile.last; }

  const at::Tensor& q_;
  const at::Tensor& k_;
  const at::Tensor& offsets_;
  const SquaredReluOptions& options_;
  std::int64_t behind_;  // keys before the first query
};

at::Tensor forward_of(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                      const at::Tensor& offsets, const SquaredReluOptions& options) {
  const at::Tensor value = v.to(at::kFloat);
  at::Tensor out = at::empty({q.size(0), q.size(1), v.size(2)}, value.options());
  const Tiles tiles(q, k, offsets, options);
  tiles.each([&](const Tile& tile) {
    const at::Tensor weights = tiles.rectified(tile).square_();
    out.narrow(1, tile.first, tile.queries())
        .copy_(at::bmm(weights, value.narrow(1, 0, tile.reach)));
  });
  return out;
}

struct SquaredRelu : torch::autograd::Function<SquaredRelu> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v, const at::Tensor& offsets,
                            const SquaredReluOptions& options) {
    context->save_for_backward({q, k, v, offsets});
    carry(context, options);
    return forward_of(q, k, v, offsets, options);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& q = saved[0];
    const at::Tensor& k = saved[1];
    const auto& options = carried<SquaredReluOptions>(context);
    const at::Tensor value = saved[2].to(at::kFloat);
    at::Tensor d_q = at::empty_like(q);
    at::Tensor d_k = at::zeros_like(k);
    at::Tensor d_value = at::zeros_like(value);
    const at::Tensor d_offsets = at::zeros_like(saved[3]);
    const Tiles tiles(q, k, saved[3], options);
    tiles.each([&](const Tile& tile) {
      const at::Tensor query = q.narrow(1, tile.first, tile.queries());
      const at::Tensor g = gradients[0].narrow(1, tile.first, tile.queries());
      at::Tensor rectified = tiles.rectified(tile);
      at::Tensor d_scores = at::bmm(g, value.narrow(1, 0, tile.reach).mT()).mul_(rectified).mul_(2);
      d_value.narrow(1, 0, tile.reach).baddbmm_(rectified.square_().mT(), g);
      d_q.narrow(1, tile.first, tile.queries())
          .copy_(at::bmm(d_scores, k.narrow(1, 0, tile.reach)).mul_(options.scale));
      d_k.narrow(1, 0, tile.reach).baddbmm_(d_scores.mT(), query, 1, options.scale);
      tiles.add_offsets(d_offsets, d_scores.sum(0), tile);
    });
    return {d_q, d_k, d_value.to(saved[2].scalar_type()), d_offsets, {}};
  }
};

}  // namespace

at::Tensor squared_relu_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                  const at::Tensor& offsets, const SquaredReluOptions& options) {
  return at::GradMode::is_enabled() ? SquaredRelu::apply(q, k, v, offsets, options)
                                    : forward_of(q, k, v, offsets, options);
}

}  // namespace transnormer::ops
