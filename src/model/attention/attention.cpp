#include "model/attention/attention.h"

#include <ATen/ATen.h>

#include <stdexcept>

#include "model/attention/unit_values.h"
#include "ops/attention/joint.h"

namespace transnormer {

at::Tensor Attention::forward_from(const at::Tensor&, const at::Tensor&, const ForwardContext&,
                                   AttentionState*) {
  throw std::logic_error("this attention takes queries from nowhere else");
}

at::Tensor Attention::weights_from(const at::Tensor&, const at::Tensor&, const ForwardContext&) {
  throw std::logic_error("this attention takes queries from nowhere else");
}

HeadShape usual_heads(const AttentionSettings& settings) {
  return {
      .heads = settings.heads, .key_dim = settings.head_dim(), .value_dim = settings.head_dim()};
}

ProjectedAttention::ProjectedAttention(const AttentionSettings& settings, const HeadShape& shape,
                                       const ProjectionStarts& starts, NormKind output_norm)
    : settings_(settings),
      shape_(shape),
      qkv_(*this, settings.dim,
           {{"q_proj", shape.keys(), starts.q},
            {"k_proj", shape.keys(), starts.k},
            {"v_proj", shape.values(), starts.v}},
           settings.device),
      out_(register_module("out_proj", std::make_shared<Linear>(shape.values(), settings.dim,
                                                                starts.out, settings.device))) {
  if (settings.lrpe) {
    lrpe_ = register_module("lrpe", std::make_shared<Lrpe>(shape.key_dim, settings.device));
  }
  if (output_norm != NormKind::none) {
    output_norm_ = register_module(
        "output_norm",
        std::make_shared<Norm>(output_norm, shape.values(), settings.norm_eps, settings.device));
  }
}

Projected ProjectedAttention::project(const at::Tensor& queries, const at::Tensor& x,
                                      const ForwardContext& context) const {
  const auto parts_of = [&](const at::Tensor& input) {
    const at::Tensor qkv = qkv_.forward(input, context.compute);
    return shape_.key_dim == shape_.value_dim
               ? ops::split(qkv, 3)
               : qkv.split_with_sizes({shape_.keys(), shape_.keys(), shape_.values()}, -1);
  };
  const auto heads = [&](const at::Tensor& part) {
    return part.view({x.size(0), x.size(1), shape_.heads, part.size(-1) / shape_.heads});
  };
  const std::vector<at::Tensor> parts = parts_of(x);
  const at::Tensor q = queries.is_same(x) ? parts[0] : parts_of(queries)[0];
  return {.q = heads(q), .k = heads(parts[1]), .v = heads(parts[2]), .x = x};
}

at::Tensor ProjectedAttention::attended(const Projected& in, const ForwardContext& context,
                                        AttentionState* state) {
  const at::Tensor merged = attend(in, context, state).flatten(2);
  if (context.observer != nullptr && state == nullptr) {
    const at::NoGradGuard no_gradients;
    const Projected met = scored(in, context);
    context.observer->on_attention(
        {.q = in.q, .k = in.k, .v = in.v, .merged = merged, .scored_q = met.q, .scored_k = met.k});
  }
  return out_->forward(finish(merged, in.x, context), context.compute);
}

at::Tensor ProjectedAttention::forward(const at::Tensor& x, const ForwardContext& context,
                                       AttentionState* state) {
  return attended(project(x, x, context), context, state);
}

at::Tensor ProjectedAttention::forward_from(const at::Tensor& queries, const at::Tensor& x,
                                            const ForwardContext& context, AttentionState* state) {
  return attended(project(queries, x, context), context, state);
}

at::Tensor ProjectedAttention::finish(const at::Tensor& merged, const at::Tensor&,
                                      const ForwardContext& context) {
  if (!output_norm_) {
    return merged;
  }
  at::Tensor normed = output_norm_->forward(merged, context.compute);
  if (context.observer != nullptr) {
    context.observer->on_normed(normed);
  }
  return normed;
}

Projected ProjectedAttention::scored(const Projected& in, const ForwardContext& context) const {
  const ops::Encoding encoded = encoding(context);
  return {.q = ops::encode(in.q, encoded), .k = ops::encode(in.k, encoded), .v = in.v, .x = in.x};
}

at::Tensor ProjectedAttention::weights(const at::Tensor& x, const ForwardContext& context) {
  return weights_from(x, x, context);
}

at::Tensor ProjectedAttention::weights_from(const at::Tensor& queries, const at::Tensor& x,
                                            const ForwardContext& context) {
  const at::NoGradGuard no_gradients;
  Projected in = project(queries, x, context);
  const at::ScalarType type = in.v.scalar_type();
  return weights_of_values(x.size(0), x.size(1), shape_.heads, shape_.value_dim, x.device(),
                           [&](const at::Tensor& values) {
                             in.v = values.to(type);
                             return attend(in, context, nullptr);
                           });
}

double ProjectedAttention::kept_bytes_per_token(at::ScalarType compute) const {
  return static_cast<double>(c10::elementSize(compute)) *
         (2 * static_cast<double>(shape_.keys()) + 3 * static_cast<double>(shape_.values()));
}

std::vector<ParameterGroup> ProjectedAttention::groups() const {
  std::vector<ParameterGroup> groups;
  for (const char* name : {"q_proj", "k_proj", "v_proj", "out_proj"}) {
    groups.push_back({name, named_children()[name]->parameters()});
  }
  return groups;
}

StateBytes ProjectedAttention::kept_keys_and_values(at::ScalarType compute) const {
  const auto numbers = static_cast<double>(shape_.keys() + shape_.values());
  return {.per_token = numbers * static_cast<double>(c10::elementSize(compute))};
}

double ProjectedAttention::mean_seen(std::int64_t tokens) const {
  return settings_.causal ? static_cast<double>(tokens + 1) / 2 : static_cast<double>(tokens);
}

ops::Encoding ProjectedAttention::encoding(const ForwardContext& context,
                                           std::int64_t period) const {
  return lrpe_ ? lrpe_->encoding(context, period) : ops::Encoding{};
}

}  // namespace transnormer
