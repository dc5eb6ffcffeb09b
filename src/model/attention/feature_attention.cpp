#include "model/attention/feature_attention.h"

#include <ATen/ATen.h>

#include "model/attention/linear_state.h"
#include "ops/attention/groups.h"

namespace transnormer {

FeatureAttention::FeatureAttention(const AttentionSettings& settings, double gain,
                                   std::int64_t feature_dim,
                                   const ops::LinearAttentionOptions& options)
    : ProjectedAttention(settings, usual_heads(settings), gain, NormKind::none),
      feature_dim_(feature_dim),
      options_(options) {}

std::unique_ptr<AttentionState> FeatureAttention::make_state(std::int64_t batch) const {
  return std::make_unique<LinearState>(ops::LinearAttentionSums(
      batch, shape().heads, feature_dim_, shape().value_dim, options_, settings().device));
}

StateBytes FeatureAttention::state_bytes(at::ScalarType) const {
  const std::int64_t beside = options_.logarithms ? 2 : 1;  // sums of keys, maxima
  return {.fixed =
              4 * static_cast<double>(shape().heads * feature_dim_ * (shape().value_dim + beside))};
}

double FeatureAttention::flops_per_token(std::int64_t) const {
  return 4 * static_cast<double>(shape().heads * feature_dim_ * shape().value_dim);
}

double FeatureAttention::kept_numbers_per_token() const {
  return ProjectedAttention::kept_numbers_per_token() +
         2 * static_cast<double>(shape().heads * feature_dim_);
}

at::Tensor FeatureAttention::attend(const Projected& in, const ForwardContext& context,
                                    AttentionState* state) {
  const ops::Encoding lrpe = encoding(context);
  const auto widened = [](const std::vector<at::Tensor>& x, const ops::Encoding& places) {
    return std::vector<at::Tensor>{ops::encode(x[0].to(at::kFloat), places),
                                   ops::encode(x[1].to(at::kFloat), places), x[2]};
  };
  if (state != nullptr) {
    const std::vector<at::Tensor> x = widened({in.q, in.k, in.v}, lrpe);
    const Features made = features(x[0], x[1], context.first_position, context);
    return ops::linear_attention_step(made.q, made.k, x[2], static_cast<LinearState&>(*state).sums,
                                      options_)
        .to(in.q.scalar_type());
  }
  const auto of_rows = [&](const std::vector<at::Tensor>& x, const at::Tensor& lengths) {
    const Features made = features(x[0], x[1], 0, context);
    ops::LinearAttentionOptions options = options_;
    options.visibility.causal = context.visibility.causal;
    if (const at::Tensor real = ops::is_token(lengths, x[0].size(1)); real.defined()) {
      options.visibility.padding = real.logical_not();
    }
    return ops::linear_attention(made.q, made.k, x[2], options);
  };
  return ops::by_rows(context.visibility, {in.q, in.k, in.v}, of_rows, lrpe, widened)
      .to(in.q.scalar_type());
}

}  // namespace transnormer
