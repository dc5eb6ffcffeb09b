#include "model/attention/attention.h"

#include "ops/attention/joint.h"

namespace transnormer {

ProjectedAttention::ProjectedAttention(const AttentionSettings& settings, double gain,
                                       NormKind output_norm)
    : settings_(settings),
      qkv_(*this, settings.dim,
           {{"q_proj", settings.dim, {.xavier_gain = gain}},
            {"k_proj", settings.dim, {.xavier_gain = gain}},
            {"v_proj", settings.dim, {.xavier_gain = gain}}},
           settings.device),
      out_(register_module(
          "out_proj", std::make_shared<Linear>(settings.dim, settings.dim,
                                               LinearStart{.xavier_gain = 1, .zero_bias = true},
                                               settings.device))) {
  if (settings.lrpe) {
    lrpe_ = register_module("lrpe", std::make_shared<Lrpe>(settings.head_dim(), settings.device));
  }
  if (output_norm != NormKind::none) {
    output_norm_ = register_module(
        "output_norm",
        std::make_shared<Norm>(output_norm, settings.dim, settings.norm_eps, settings.device));
  }
}

at::Tensor ProjectedAttention::forward(const at::Tensor& x, const ForwardContext& context,
                                       AttentionState* state) {
  const at::Tensor qkv = qkv_.forward(x, context.compute);
  const std::vector<at::Tensor> heads = ops::split(qkv, 3);
  const auto part = [&](std::size_t i) {
    return heads[i].view({x.size(0), x.size(1), settings_.heads, settings_.head_dim()});
  };
  at::Tensor y = attend(part(0), part(1), part(2), context, state).flatten(2);
  if (output_norm_) {
    y = output_norm_->forward(y, context.compute);
  }
  return out_->forward(y, context.compute);
}

ops::Encoding ProjectedAttention::encoding(const ForwardContext& context,
                                           std::int64_t period) const {
  return lrpe_ ? lrpe_->encoding(context.first_position, period) : ops::Encoding{};
}

}  // namespace transnormer
