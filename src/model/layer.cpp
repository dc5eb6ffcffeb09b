#include "model/layer.h"

#include "model/attention/registry.h"
#include "model/recompute.h"

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

at::Tensor Layer::forward(const at::Tensor& x, const ForwardContext& context,
                          AttentionState* state) {
  return placement_ == NormPlacement::pre ? forward_pre(x, context, state)
                                          : forward_post(x, context, state);
}

at::Tensor Layer::forward_pre(const at::Tensor& x, const ForwardContext& context,
                              AttentionState* state) {
  const auto [before, attention_input] = attention_norm_->forward(x, {}, {}, context.compute);
  const at::Tensor attended = attention_->forward(attention_input, context, state);
  const auto [between, ffn_input] =
      ffn_norm_->forward(before, attended, drop(DropoutSite::attention, context), context.compute);
  return ops::residual(between, ffn_->forward(ffn_input, context.compute),
                       drop(DropoutSite::ffn, context));
}

at::Tensor Layer::forward_post(const at::Tensor& x, const ForwardContext& context,
                               AttentionState* state) {
  const at::Tensor attended = attention_->forward(x.to(context.compute), context, state);
  const at::Tensor between =
      attention_norm_->forward(x, attended, drop(DropoutSite::attention, context), at::kFloat)
          .normed;
  const at::Tensor fed = ffn_->forward(between.to(context.compute), context.compute);
  return ffn_norm_->forward(between, fed, drop(DropoutSite::ffn, context), at::kFloat).normed;
}

ops::Drop Layer::drop(DropoutSite site, const ForwardContext& context) const {
  return {context.training ? dropout_ : 0, context.dropout_key(index_, site)};
}

at::Tensor Layer::forward_recomputed(const at::Tensor& x, const ForwardContext& context) {
  return recomputed(x, parameters_, [this, context](const at::Tensor& in) {
    return forward(in, context, nullptr);
  });
}

}  // namespace transnormer
