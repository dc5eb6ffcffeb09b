#include "model/attention/feature_attention.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <vector>

#include "model/attention/linear_state.h"
#include "model/recompute.h"
#include "ops/attention/groups.h"

namespace transnormer {

FeatureAttention::FeatureAttention(const AttentionSettings& settings,
                                   const ProjectionStarts& starts, std::int64_t feature_dim,
                                   const ops::LinearAttentionOptions& options)
    : ProjectedAttention(settings, usual_heads(settings), starts, NormKind::none),
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

double FeatureAttention::kept_bytes_per_token(at::ScalarType compute) const {
  const std::int64_t features = 2 * shape().heads * feature_dim_;
  const std::int64_t widened = 2 * shape().keys() + 2 * shape().values();
  return ProjectedAttention::kept_bytes_per_token(compute) +
         4 * static_cast<double>(features + widened);
}

// Those of a long sequence in slices that the caches hold, which are made again in the backward
// pass: all that is met between a token and its features would else be kept.
at::Tensor FeatureAttention::features(const at::Tensor& x, const Of& of,
                                      const ForwardContext& context) {
  constexpr std::int64_t kSlice = 2048;
  if (x.size(1) <= kSlice || !at::GradMode::is_enabled()) {
    return feature(x, of, context);
  }
  std::vector<at::Tensor> slices;
  for (std::int64_t first = 0; first < x.size(1); first += kSlice) {
    slices.push_back(recomputed(
        x.narrow(1, first, std::min(kSlice, x.size(1) - first)), parameters(/*recurse=*/false),
        [this, context, here = Of{.query = of.query, .first = of.first + first}](
            const at::Tensor& slice) { return feature(slice, here, context); }));
  }
  return at::cat(slices, 1);
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
    const std::int64_t first = context.first_position;
    return ops::linear_attention_step(feature(x[0], {.query = true, .first = first}, context),
                                      feature(x[1], {.query = false, .first = first}, context),
                                      x[2], static_cast<LinearState&>(*state).sums, options_)
        .to(in.q.scalar_type());
  }
  const auto of_rows = [&](const std::vector<at::Tensor>& x, const at::Tensor& lengths) {
    ops::LinearAttentionOptions options = options_;
    options.visibility.causal = context.visibility.causal;
    if (const at::Tensor real = ops::is_token(lengths, x[0].size(1)); real.defined()) {
      options.visibility.padding = real.logical_not();
    }
    return ops::linear_attention(features(x[0], {.query = true}, context),
                                 features(x[1], {.query = false}, context), x[2], options);
  };
  return ops::by_rows(context.visibility, {in.q, in.k, in.v}, of_rows, lrpe, widened)
      .to(in.q.scalar_type());
}

}  // namespace transnormer
