#include "model/attention/attention.h"

#include "ops/attention/joint.h"

namespace transnormer {

HeadShape usual_heads(const AttentionSettings& settings) {
  return {
      .heads = settings.heads, .key_dim = settings.head_dim(), .value_dim = settings.head_dim()};
}

ProjectedAttention::ProjectedAttention(const AttentionSettings& settings, const HeadShape& shape,
                                       double gain, NormKind output_norm)
    : settings_(settings),
      shape_(shape),
      qkv_(*this, settings.dim,
           {{"q_proj", shape.keys(), {.xavier_gain = gain}},
            {"k_proj", shape.keys(), {.xavier_gain = gain}},
            {"v_proj", shape.values(), {.xavier_gain = gain}}},
           settings.device),
      out_(register_module(
          "out_proj", std::make_shared<Linear>(shape.values(), settings.dim,
                                               LinearStart{.xavier_gain = 1, .zero_bias = true},
                                               settings.device))) {
  if (settings.lrpe) {
    lrpe_ = register_module("lrpe", std::make_shared<Lrpe>(shape.key_dim, settings.device));
  }
  if (output_norm != NormKind::none) {
    output_norm_ = register_module(
        "output_norm",
        std::make_shared<Norm>(output_norm, shape.values(), settings.norm_eps, settings.device));
  }
}

at::Tensor ProjectedAttention::forward(const at::Tensor& x, const ForwardContext& context,
                                       AttentionState* state) {
  const at::Tensor qkv = qkv_.forward(x, context.compute);
  const std::vector<at::Tensor> parts =
      shape_.key_dim == shape_.value_dim
          ? ops::split(qkv, 3)
          : qkv.split_with_sizes({shape_.keys(), shape_.keys(), shape_.values()}, -1);
  const auto heads = [&](const at::Tensor& part) {
    return part.view({x.size(0), x.size(1), shape_.heads, part.size(-1) / shape_.heads});
  };
  at::Tensor y = attend(heads(parts[0]), heads(parts[1]), heads(parts[2]), context, state);
  y = y.flatten(2);
  if (output_norm_) {
    y = output_norm_->forward(y, context.compute);
  }
  return out_->forward(y, context.compute);
}

double ProjectedAttention::kept_numbers_per_token() const {
  return 2 * static_cast<double>(shape_.keys()) + 3 * static_cast<double>(shape_.values());
}

std::vector<ParameterGroup> ProjectedAttention::groups() const {
  std::vector<ParameterGroup> groups;
  for (const char* name : {"q_proj", "k_proj", "v_proj", "out_proj"}) {
    groups.push_back({name, named_children()[name]->parameters()});
  }
  return groups;
}

double ProjectedAttention::mean_seen(std::int64_t tokens) const {
  return settings_.causal ? static_cast<double>(tokens + 1) / 2 : static_cast<double>(tokens);
}

ops::Encoding ProjectedAttention::encoding(const ForwardContext& context,
                                           std::int64_t period) const {
  return lrpe_ ? lrpe_->encoding(context, period) : ops::Encoding{};
}

}  // namespace transnormer
