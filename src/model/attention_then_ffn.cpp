#include "model/attention_then_ffn.h"

#include <utility>

namespace transnormer {

AttentionThenFfn::AttentionThenFfn(std::shared_ptr<Attention> attention,
                                   const BlockSettings& settings)
    : layer_(settings.layer),
      dim_(settings.model.dim),
      ffn_dim_(settings.model.resolved_ffn_dim()),
      placement_(settings.model.norm_placement),
      dropout_(settings.model.dropout) {
  const auto norm = [&] {
    return std::make_shared<Norm>(settings.model.norm, settings.model.dim, settings.model.norm_eps,
                                  settings.device);
  };
  attention_norm_ = register_module("attn_norm", norm());
  attention_ = register_module("attn", std::move(attention));
  ffn_norm_ = register_module("ffn_norm", norm());
  ffn_ = register_module("ffn", make_ffn(settings.model, settings.device));
}

at::Tensor AttentionThenFfn::forward(const at::Tensor& x, const ForwardContext& context,
                                     AttentionState* state) {
  return placement_ == NormPlacement::pre ? forward_pre(x, context, state)
                                          : forward_post(x, context, state);
}

at::Tensor AttentionThenFfn::forward_pre(const at::Tensor& x, const ForwardContext& context,
                                         AttentionState* state) {
  const auto [before, attention_input] = attention_norm_->forward(x, {}, {}, context.compute);
  const at::Tensor attended = attention_->forward(attention_input, context, state);
  const auto [between, ffn_input] =
      ffn_norm_->forward(before, attended, drop(DropoutSite::attention, context), context.compute);
  return ops::residual(between, ffn_->forward(ffn_input, context.compute),
                       drop(DropoutSite::ffn, context));
}

at::Tensor AttentionThenFfn::forward_post(const at::Tensor& x, const ForwardContext& context,
                                          AttentionState* state) {
  const at::Tensor attended = attention_->forward(x.to(context.compute), context, state);
  const at::Tensor between =
      attention_norm_->forward(x, attended, drop(DropoutSite::attention, context), at::kFloat)
          .normed;
  const at::Tensor fed = ffn_->forward(between.to(context.compute), context.compute);
  return ffn_norm_->forward(between, fed, drop(DropoutSite::ffn, context), at::kFloat).normed;
}

at::Tensor AttentionThenFfn::attention_weights(const at::Tensor& x, const ForwardContext& context) {
  return attention_->weights(placement_ == NormPlacement::pre
                                 ? attention_norm_->forward(x, context.compute)
                                 : x.to(context.compute),
                             context);
}

StateBytes AttentionThenFfn::state_bytes(at::ScalarType compute) const {
  return attention_->state_bytes(compute);
}

bool AttentionThenFfn::can_be_captured() const {
  return attention_->can_be_captured();
}

std::optional<std::int64_t> AttentionThenFfn::most_positions() const {
  return attention_->most_positions();
}

ops::Drop AttentionThenFfn::drop(DropoutSite site, const ForwardContext& context) const {
  return {context.training ? dropout_ : 0, context.dropout_key(layer_, site, dim_)};
}

std::unique_ptr<AttentionState> AttentionThenFfn::make_state(std::int64_t batch) const {
  return attention_->make_state(batch);
}

BlockFlops AttentionThenFfn::flops_per_token(std::int64_t length) const {
  return {.products = product_flops(*this), .attention = attention_->flops_per_token(length)};
}

double AttentionThenFfn::kept_bytes_per_token(at::ScalarType compute) const {
  // The stream before both parts, their normed inputs, what the feed-forward products give out
  // before the last one.
  const auto dim = static_cast<double>(dim_);
  return 2 * 4 * dim +
         static_cast<double>(c10::elementSize(compute)) *
             (2 * dim + 2 * static_cast<double>(ffn_dim_)) +
         attention_->kept_bytes_per_token(compute);
}

std::vector<ParameterGroup> AttentionThenFfn::groups() const {
  std::vector<ParameterGroup> groups = attention_->groups();
  groups.push_back({"ffn", ffn_->parameters()});
  return groups;
}

}  // namespace transnormer
