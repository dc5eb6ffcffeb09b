#include "model/attention/summary_attention.h"

#include <ATen/ATen.h>

#include <cmath>
#include <vector>

#include "ops/attention/groups.h"
#include "ops/attention/summaries.h"
#include "ops/attention/weight_dropout.h"

namespace transnormer {

SummaryAttention::SummaryAttention(const AttentionSettings& settings)
    : ProjectedAttention(settings, usual_heads(settings), std::sqrt(0.5), NormKind::none),
      scale_(1 / std::sqrt(static_cast<double>(settings.head_dim()))) {}

at::Tensor SummaryAttention::attend(const Projected& in, const ForwardContext& context,
                                    AttentionState*) {
  const std::int64_t time = in.q.size(1);
  std::vector<at::Tensor> operands{in.q, in.k, in.v};
  const bool drops = context.training && settings().dropout > 0;
  if (drops) {
    operands.insert(operands.begin(),
                    ops::weight_dropout({.batch = in.q.size(0),
                                         .time = time,
                                         .heads = settings().heads,
                                         .keys = summaries_of(time)},
                                        {settings().dropout,
                                         context.dropout_key(settings().random_key,
                                                             DropoutSite::attention_weights, 0)},
                                        context.visibility, in.q.device()));
  }
  return ops::by_rows(
      context.visibility, operands,
      [&](const std::vector<at::Tensor>& rows, const at::Tensor& lengths) {
        const std::size_t first = drops ? 1 : 0;
        const at::Tensor& q = rows[first];
        const Summary made = summarize(rows[first + 1], rows[first + 2], lengths);
        const at::Tensor mask = drops ? rows[0].narrow(3, 0, made.k.size(1)) : at::Tensor();
        return ops::attend_to_summaries(q, made.k, made.v, scale_, made.counts, mask);
      });
}

}  // namespace transnormer
