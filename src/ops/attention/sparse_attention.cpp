#include "ops/attention/sparse_attention.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <limits>

#include "ops/attention/weight_dropout.h"
#include "ops/attention/window.h"
#include "ops/runtime/carry.h"

namespace transnormer::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// What no query sees: finite, so that a row without a key stays a number, and far enough below any
// score that its exponential is zero.
constexpr float kHidden = std::numeric_limits<float>::lowest() / 2;

// The tokens of equal place modulo the stride, each class against itself: `stride` classes of
// ceil(time / stride) tokens, with the methods of a Band.
class Residues {
 public:
  Residues(std::int64_t time, const SparseAttentionOptions& options, const at::Tensor& lengths,
           const at::Device& device)
      : time_(time),
        stride_(std::min(options.stride, time)),
        members_((time + stride_ - 1) / stride_) {
    const auto integers = at::device(device).dtype(at::kLong);
    const at::Tensor member = at::arange(members_, integers);
    const at::Tensor behind = (member.unsqueeze(1) - member) * stride_;
    // Those that the window has are not counted again.
    const at::Tensor far =
        options.causal ? behind >= options.window : behind.abs() >= options.window;
    const at::Tensor place = at::arange(stride_, integers).view({-1, 1, 1}) + member * stride_;
    const at::Tensor last = lengths.defined() ? lengths.view({-1, 1, 1, 1, 1})
                                              : at::full({1, 1, 1, 1, 1}, time, integers);
    hidden_ = at::logical_or(far.logical_not(), place >= last);
  }

  [[nodiscard]] const at::Tensor& hidden() const { return hidden_; }
  [[nodiscard]] std::int64_t members() const { return members_; }

  // [rows, time, heads, n] -> [rows, heads, stride, members, n], and back.
  [[nodiscard]] at::Tensor cut(const at::Tensor& x) const {
    const std::int64_t lacking = members_ * stride_ - time_;
    const at::Tensor whole = lacking > 0 ? at::constant_pad_nd(x, {0, 0, 0, 0, 0, lacking}) : x;
    return whole.unflatten(1, {members_, stride_}).permute({0, 3, 2, 1, 4});
  }
  [[nodiscard]] at::Tensor join(const at::Tensor& x) const {
    return x.permute({0, 3, 2, 1, 4}).flatten(1, 2).narrow(1, 0, time_);
  }
  [[nodiscard]] at::Tensor reach(const at::Tensor& x) const { return cut(x); }
  [[nodiscard]] at::Tensor sum_up(const at::Tensor& x) const { return join(x); }

 private:
  std::int64_t time_;
  std::int64_t stride_;
  std::int64_t members_;
  at::Tensor hidden_;
};

// Operands in fp32, queries scaled.
struct Operands {
  Operands(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, double scale)
      : q(query.to(at::kFloat) * scale), k(key.to(at::kFloat)), v(value.to(at::kFloat)) {}
  at::Tensor q;
  at::Tensor k;
  at::Tensor v;
};

// The scores of a part, in which hidden ones have no weight.
template <class Part>
at::Tensor scores_of(const Part& part, const Operands& x) {
  return at::matmul(part.cut(x.q), part.reach(x.k).mT()).masked_fill_(part.hidden(), kHidden);
}

// A part's share of the sums: of e^(score - shift), and of the values by it. Uses up the scores.
struct Share {
  at::Tensor total;
  at::Tensor values;
};

template <class Part>
Share share_of(const Part& part, at::Tensor scores, const at::Tensor& shift, const at::Tensor& v,
               const at::Tensor& mask) {
  const at::Tensor weights = scores.sub_(part.cut(shift)).exp_();
  const at::Tensor total = part.join(weights.sum(-1, /*keepdim=*/true));
  if (mask.defined()) {
    weights.mul_(part.cut(mask));
  }
  return {total, part.join(at::matmul(weights, part.reach(v)))};
}

// A part's share of the gradients, that of q without its scale. log_sum: of all e^score of a query;
// along: the gradient's product with its output. Both [rows, time, heads, 1].
template <class Part>
Operands gradients_of(const Part& part, const Operands& x, const at::Tensor& gradient,
                      const at::Tensor& log_sum, const at::Tensor& along, const at::Tensor& mask) {
  const at::Tensor weights = scores_of(part, x).sub_(part.cut(log_sum)).exp_();
  const at::Tensor g = part.cut(gradient);
  at::Tensor d_scores = at::matmul(g, part.reach(x.v).mT());
  at::Tensor dropped = weights;
  if (mask.defined()) {
    const at::Tensor kept = part.cut(mask);
    dropped = weights * kept;
    d_scores.mul_(kept);
  }
  const at::Tensor d_v = part.sum_up(at::matmul(dropped.mT(), g));
  d_scores.sub_(part.cut(along)).mul_(weights);
  return {part.join(at::matmul(d_scores, part.reach(x.k))),
          part.sum_up(at::matmul(d_scores.mT(), part.cut(x.q))), d_v, 1};
}

struct Parts {
  Band band;
  Residues residues;
  SparseAttentionOptions options;
  SparseMasks masks;
};

struct SparseAttention : torch::autograd::Function<SparseAttention> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v, const Parts& given) {
    const auto& [band, residues, options, masks] = carry(context, given);
    const Operands x(q, k, v, options.scale);
    const at::Tensor near = scores_of(band, x);
    const at::Tensor far = scores_of(residues, x);
    const at::Tensor most = at::maximum(band.join(near.amax(-1, /*keepdim=*/true)),
                                        residues.join(far.amax(-1, /*keepdim=*/true)));
    const Share a = share_of(band, near, most, x.v, masks.window);
    const Share b = share_of(residues, far, most, x.v, masks.strided);
    const at::Tensor total = a.total + b.total;
    const at::Tensor y = ((a.values + b.values) / total).to(q.scalar_type());
    context->save_for_backward({q, k, v, y, most + total.log()});
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const auto& [band, residues, options, masks] = carried<Parts>(context);
    const Operands x(saved[0], saved[1], saved[2], options.scale);
    const at::Tensor g = gradients[0].to(at::kFloat);
    const at::Tensor along = (g * saved[3]).sum(-1, /*keepdim=*/true);
    const Operands a = gradients_of(band, x, g, saved[4], along, masks.window);
    const Operands b = gradients_of(residues, x, g, saved[4], along, masks.strided);
    return {((a.q + b.q) * options.scale).to(saved[0].scalar_type()),
            (a.k + b.k).to(saved[1].scalar_type()),
            (a.v + b.v).to(saved[2].scalar_type()),
            {}};
  }
};

}  // namespace

// A key's number in the window is its place in the reach of the query's block, counted from where
// the whole window would begin: shorter rows have a shorter reach, but the same numbers.
SparseMasks sparse_dropout(const at::Tensor& q, const Drop& drop, const Visibility& visibility,
                           const SparseAttentionOptions& options) {
  if (drop.p == 0) {
    return {};
  }
  const Band band(q.size(1), options.window, options.causal, {}, q.device());
  const Residues residues(q.size(1), options, {}, q.device());
  WeightShape shape{.batch = q.size(0),
                    .time = q.size(1),
                    .heads = q.size(2),
                    .keys = band.span(),
                    .first_key = options.window - 1 - band.before()};
  SparseMasks masks{.window = weight_dropout(shape, drop, visibility, q.device()),
                    .strided = {},
                    .before = band.before()};
  shape.keys = residues.members();
  shape.first_key = 2 * options.window + Band::kLongestBlock;  // behind all of the window's
  masks.strided = weight_dropout(shape, drop, visibility, q.device());
  return masks;
}

at::Tensor sparse_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const at::Tensor& lengths, const SparseMasks& masks,
                            const SparseAttentionOptions& options) {
  const std::int64_t time = q.size(1);
  const Band band(time, options.window, options.causal, lengths, q.device());
  const Residues residues(time, options, lengths, q.device());
  SparseMasks own;
  if (masks.window.defined()) {
    own.window = masks.window.narrow(3, masks.before - band.before(), band.span());
    own.strided = masks.strided.narrow(3, 0, residues.members());
  }
  return SparseAttention::apply(q, k, v, Parts{band, residues, options, own});
}

}  // namespace transnormer::ops
