#include "ops/attention/window.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "ops/runtime/carry.h"

namespace transnormer::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct BandScores : torch::autograd::Function<BandScores> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& q, const at::Tensor& k,
                            const Band& band) {
    context->save_for_backward({q, k});
    carry(context, band);
    return at::matmul(band.cut(q.to(at::kFloat)), band.reach(k.to(at::kFloat)).mT());
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const auto& band = carried<Band>(context);
    const at::Tensor& g = gradients[0];
    const at::Tensor d_q = band.join(at::matmul(g, band.reach(saved[1].to(at::kFloat))));
    const at::Tensor d_k = band.sum_up(at::matmul(g.mT(), band.cut(saved[0].to(at::kFloat))));
    return {d_q.to(saved[0].scalar_type()), d_k.to(saved[1].scalar_type()), {}};
  }
};

struct BandApply : torch::autograd::Function<BandApply> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& weights,
                            const at::Tensor& v, const Band& band) {
    context->save_for_backward({weights, v});
    carry(context, band);
    return band.join(at::matmul(weights, band.reach(v.to(at::kFloat))));
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const auto& band = carried<Band>(context);
    const at::Tensor g = band.cut(gradients[0]);
    const at::Tensor d_v = band.sum_up(at::matmul(saved[0].mT(), g));
    return {at::matmul(g, band.reach(saved[1].to(at::kFloat)).mT()),
            d_v.to(saved[1].scalar_type()),
            {}};
  }
};

}  // namespace

Band::Band(std::int64_t time, std::int64_t window, bool causal, const at::Tensor& lengths,
           const at::Device& device)
    : time_(time),
      block_(std::min(std::clamp(window, kShortestBlock, kLongestBlock), time)),
      blocks_((time + block_ - 1) / block_),
      before_(std::min(window, time) - 1),
      span_(before_ + block_ + (causal ? 0 : before_)) {
  const auto integers = at::device(device).dtype(at::kLong);
  const at::Tensor query = at::arange(block_, integers).unsqueeze(1);
  const at::Tensor key = at::arange(-before_, span_ - before_, integers);  // from a block's start
  const at::Tensor behind = query - key;
  const at::Tensor far =
      causal ? at::logical_or(behind<0, behind> before_) : behind.abs() > before_;
  // [blocks, 1, span]
  const at::Tensor place =
      (at::arange(blocks_, integers) * block_).view({-1, 1, 1}) + key.view({1, 1, -1});
  const at::Tensor last = lengths.defined() ? lengths.view({-1, 1, 1, 1, 1})
                                            : at::full({1, 1, 1, 1, 1}, time, integers);
  const at::Tensor nothing = at::logical_or(place < 0, place >= last);
  hidden_ = at::logical_and(at::logical_or(far, nothing), behind != 0);
}

at::Tensor Band::cut(const at::Tensor& x) const {
  const std::int64_t lacking = blocks_ * block_ - time_;
  const at::Tensor whole = lacking > 0 ? at::constant_pad_nd(x, {0, 0, 0, 0, 0, lacking}) : x;
  return whole.transpose(1, 2).unflatten(2, {blocks_, block_});
}

at::Tensor Band::join(const at::Tensor& x) const {
  return x.flatten(2, 3).narrow(2, 0, time_).transpose(1, 2);
}

at::Tensor Band::reach(const at::Tensor& x) const {
  const std::int64_t last = (blocks_ - 1) * block_ + span_ - before_;
  const at::Tensor wide =
      at::constant_pad_nd(x.transpose(1, 2), {0, 0, before_, last - time_}).contiguous();
  const std::int64_t width = wide.size(3);
  return wide.as_strided({wide.size(0), wide.size(1), blocks_, span_, width},
                         {wide.stride(0), wide.stride(1), block_ * width, width, 1});
}

at::Tensor Band::sum_up(const at::Tensor& x) const {
  const std::int64_t pieces = (span_ + block_ - 1) / block_;
  at::Tensor sum =
      at::zeros({x.size(0), x.size(1), blocks_ + pieces - 1, block_, x.size(4)}, x.options());
  for (std::int64_t piece = 0; piece < pieces; ++piece) {
    const std::int64_t first = piece * block_;
    const std::int64_t count = std::min(block_, span_ - first);
    sum.narrow(2, piece, blocks_).narrow(3, 0, count).add_(x.narrow(3, first, count));
  }
  return sum.flatten(2, 3).narrow(2, before_, time_).transpose(1, 2);
}

at::Tensor Band::scores(const at::Tensor& q, const at::Tensor& k) const {
  return BandScores::apply(q, k, *this);
}

at::Tensor Band::apply(const at::Tensor& weights, const at::Tensor& v) const {
  return BandApply::apply(weights, v, *this);
}

}  // namespace transnormer::ops
