#include "ops/attention/landmarks.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "ops/runtime/carry.h"

namespace transnormer::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int kIterations = 6;

struct Sizes {
  at::ScalarType type;
  std::int64_t rows;
  std::int64_t time;
  std::int64_t most;
  std::int64_t longest;
};

// Each token is in one segment, so that both ways are look-ups.
struct SegmentMeans : torch::autograd::Function<SegmentMeans> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& token,
                            const at::Tensor& share, const at::Tensor& segment,
                            const at::Tensor& token_share, const Sizes& sizes) {
    context->save_for_backward({segment, token_share});
    carry(context, sizes);
    const std::int64_t heads = x.size(2);
    const at::Tensor members =
        x.reshape({sizes.rows * sizes.time, heads * x.size(3)}).index_select(0, token);
    return members.view({sizes.rows * sizes.most, sizes.longest, -1})
        .to(at::kFloat)
        .mul_(share)
        .sum(1)
        .view({sizes.rows, sizes.most, heads, -1});
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const auto& sizes = carried<Sizes>(context);
    const at::Tensor& g = gradients[0];
    const at::Tensor d_x = g.reshape({sizes.rows * sizes.most, g.size(2) * g.size(3)})
                               .index_select(0, saved[0])
                               .mul_(saved[1])
                               .view({sizes.rows, sizes.time, g.size(2), g.size(3)});
    return {d_x.to(sizes.type), {}, {}, {}, {}, {}};
  }
};

// The steps of one iteration from y = a Z, with I behind them: 7 I - y, 15 I - y (..), 13 I - y
// (..).
at::Tensor inner_of(const at::Tensor& y, const at::Tensor& identity) {
  return identity * 7 - y;
}

// What the backward pass finds of each iteration, behind a.
enum Kept : std::size_t { kZ, kY, kMiddle, kOuter, kKeptNumber };

at::Tensor identity_like(const at::Tensor& a) {
  return at::eye(a.size(-1), a.options()).unsqueeze(0);
}

// a, start: [matrices, m, m].
struct Iterations : torch::autograd::Function<Iterations> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& a,
                            const at::Tensor& start) {
    variable_list kept{a};
    const at::Tensor identity = identity_like(a);
    at::Tensor z = start;
    for (int i = 0; i < kIterations; ++i) {
      const at::Tensor y = at::bmm(a, z);
      const at::Tensor middle = at::baddbmm(identity, y, inner_of(y, identity), 15, -1);
      const at::Tensor outer = at::baddbmm(identity, y, middle, 13, -1);
      kept.insert(kept.end(), {z, y, middle, outer});
      z = at::bmm(z, outer).mul_(0.25);
    }
    context->save_for_backward(kept);
    return z;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& a = saved[0];
    const at::Tensor identity = identity_like(a);
    at::Tensor d_z = gradients[0];
    at::Tensor d_a = at::zeros_like(a);
    for (std::size_t i = kIterations; i-- > 0;) {
      const auto of = [&](Kept what) { return saved[1 + i * kKeptNumber + what]; };
      const at::Tensor z = of(kZ), y = of(kY);
      const at::Tensor d = d_z * 0.25;
      const at::Tensor d_outer = at::bmm(z.mT(), d);         // of 13 I - y middle
      const at::Tensor d_middle = at::bmm(y.mT(), d_outer);  // of 15 I - y inner, negated
      const at::Tensor d_inner = at::bmm(y.mT(), d_middle);  // of 7 I - y
      at::Tensor d_y = at::bmm(d_middle, inner_of(y, identity).mT());
      d_y.baddbmm_(d_outer, of(kMiddle).mT(), 1, -1).sub_(d_inner);
      d_a.baddbmm_(d_y, z.mT());
      d_z = at::bmm(d, of(kOuter).mT()).baddbmm_(a.mT(), d_y);
    }
    return {d_a, d_z};
  }
};

}  // namespace

Segments::Segments(std::int64_t rows, std::int64_t time, std::int64_t segments,
                   const at::Tensor& lengths, const at::Device& device)
    : rows_(rows),
      time_(time),
      most_(std::min(segments, time)),
      longest_((time + most_ - 1) / most_) {
  const auto integers = at::device(device).dtype(at::kLong);
  const at::Tensor tokens =
      (lengths.defined() ? lengths.to(device) : at::full({1}, time, integers)).expand({rows});
  const at::Tensor own = tokens.clamp_max(most_);
  if (lengths.defined()) {
    counts_ = own;
  }
  const at::Tensor n = tokens.unsqueeze(1);
  const at::Tensor m = own.unsqueeze(1);
  const at::Tensor row = at::arange(rows, integers).unsqueeze(1);

  // Segment j begins at ceil(j n / m).
  const at::Tensor j = at::arange(most_ + 1, integers).unsqueeze(0);
  const at::Tensor begin = ((j * n + m - 1).div(m, "floor")).minimum(n);  // [rows, most + 1]
  const at::Tensor first = begin.narrow(1, 0, most_);
  const at::Tensor members = begin.narrow(1, 1, most_) - first;
  const at::Tensor place = first.unsqueeze(2) + at::arange(longest_, integers);
  const at::Tensor inside = place < begin.narrow(1, 1, most_).unsqueeze(2);
  token_ = (place.clamp_max(time - 1) + row.unsqueeze(2) * time).flatten();
  const at::Tensor inverse = members.clamp_min(1).to(at::kFloat).reciprocal();
  share_ = (inside * inverse.unsqueeze(2)).view({rows * most_, longest_, 1});

  const at::Tensor t = at::arange(time, integers).unsqueeze(0);
  const at::Tensor of_token = (t * m).div(n, "floor").minimum(m - 1);  // [rows, time]
  segment_ = (of_token + row * most_).flatten();
  token_share_ = ((t < n) * inverse.gather(1, of_token)).view({rows * time, 1});
}

at::Tensor Segments::means(const at::Tensor& x) const {
  return SegmentMeans::apply(x, token_, share_, segment_, token_share_,
                             Sizes{x.scalar_type(), rows_, time_, most_, longest_});
}

at::Tensor iterated_pseudo_inverse(const at::Tensor& a) {
  const at::Tensor matrices = a.flatten(0, -3);
  const at::Tensor columns = matrices.sum(1).amax(1);
  const at::Tensor rows = matrices.sum(2).amax(1);
  const at::Tensor start = matrices.mT() / (columns * rows).view({-1, 1, 1});
  return Iterations::apply(matrices, start.contiguous()).view(a.sizes());
}

}  // namespace transnormer::ops
