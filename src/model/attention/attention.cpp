#include "model/attention/attention.h"

namespace transnormer {

ProjectedAttention::ProjectedAttention(const AttentionSettings& settings, double gain,
                                       NormKind output_norm)
    : settings_(settings) {
  const auto projection = [&](const char* name, const LinearStart& start) {
    return register_module(
        name, std::make_shared<Linear>(settings.dim, settings.dim, start, settings.device));
  };
  q_ = projection("q_proj", {.xavier_gain = gain});
  k_ = projection("k_proj", {.xavier_gain = gain});
  v_ = projection("v_proj", {.xavier_gain = gain});
  out_ = projection("out_proj", {.xavier_gain = 1, .zero_bias = true});
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
  const auto heads = [&](const Linear& projection) {
    return projection.forward(x, context.compute)
        .view({x.size(0), x.size(1), settings_.heads, settings_.head_dim()});
  };
  at::Tensor y = attend(heads(*q_), heads(*k_), heads(*v_), context, state).flatten(2);
  if (output_norm_) {
    y = output_norm_->forward(y, context.compute);
  }
  return out_->forward(y, context.compute);
}

at::Tensor ProjectedAttention::encode(const at::Tensor& x, const ForwardContext& context,
                                      std::int64_t period) const {
  return lrpe_ ? lrpe_->forward(x, context.first_position, period) : x;
}

}  // namespace transnormer
