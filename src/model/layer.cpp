#include "model/layer.h"

#include "model/attention/registry.h"
#include "model/recompute.h"
#include "ops/dropout.h"

namespace transnormer {

Layer::Layer(const ModelConfig& config, std::int64_t index, at::Device device)
    : index_(index), placement_(config.norm_placement), dropout_(config.dropout) {
  const AttentionSettings settings{.layer = index,
                                   .dim = config.dim,
                                   .heads = config.heads,
                                   .lrpe = config.lrpe,
                                   .norm_eps = config.norm_eps,
                                   .dropout = config.attention_dropout,
                                   .device = device};
  const auto norm = [&] {
    return std::make_shared<Norm>(config.norm, config.dim, config.norm_eps, device);
  };
  attention_norm_ = register_module("attn_norm", norm());
  attention_ = register_module(
      "attn", make_attention(index < config.resolved_early_layers() ? config.early : config.late,
                             settings));
  ffn_norm_ = register_module("ffn_norm", norm());
  ffn_ = register_module("ffn", make_ffn(config, device));
  parameters_ = parameters();
}

template <typename Part>
at::Tensor Layer::residual(const at::Tensor& x, const Norm& norm, DropoutSite site,
                           const ForwardContext& context, const Part& part) const {
  const bool pre = placement_ == NormPlacement::pre;
  const at::Tensor y = part(pre ? norm.forward(x, context.compute) : x.to(context.compute));
  const at::Tensor sum =
      x + ops::dropout(y, context.training ? dropout_ : 0, context.dropout_key(index_, site));
  return pre ? sum : norm.forward(sum, at::kFloat);
}

at::Tensor Layer::forward(const at::Tensor& x, const ForwardContext& context,
                          AttentionState* state) {
  const at::Tensor attended =
      residual(x, *attention_norm_, DropoutSite::attention, context,
               [&](const at::Tensor& in) { return attention_->forward(in, context, state); });
  return residual(attended, *ffn_norm_, DropoutSite::ffn, context,
                  [&](const at::Tensor& in) { return ffn_->forward(in, context.compute); });
}

at::Tensor Layer::forward_recomputed(const at::Tensor& x, const ForwardContext& context) {
  return recomputed(x, parameters_, [this, context](const at::Tensor& in) {
    return forward(in, context, nullptr);
  });
}

}  // namespace transnormer
