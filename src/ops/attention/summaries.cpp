#include "ops/attention/summaries.h"

#include <ATen/ATen.h>

#include <limits>
#include <optional>

#include "ops/attention/groups.h"

namespace transnormer::ops {

at::Tensor attend_to_summaries(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                               double scale, const at::Tensor& counts, const at::Tensor& mask) {
  const std::int64_t keys = k.size(1);
  at::Tensor seen;  // bool [rows, 1, 1, keys]
  if (counts.defined()) {
    seen = is_token(counts, keys).unsqueeze(1).unsqueeze(1);
  }
  const auto heads = [](const at::Tensor& x) { return x.transpose(1, 2); };
  if (!mask.defined()) {
    std::optional<at::Tensor> allowed;
    if (seen.defined()) {
      allowed = seen.expand({q.size(0), 1, q.size(1), keys});
    }
    return heads(at::scaled_dot_product_attention(heads(q), heads(k), heads(v), allowed, 0,
                                                  /*is_causal=*/false, scale));
  }
  at::Tensor scores =
      at::matmul(heads(q.to(at::kFloat)) * scale, heads(k.to(at::kFloat)).transpose(2, 3));
  if (seen.defined()) {
    scores = scores.masked_fill(seen.logical_not(), -std::numeric_limits<float>::infinity());
  }
  const at::Tensor weights = scores.softmax(-1) * heads(mask);
  return heads(at::matmul(weights, heads(v.to(at::kFloat)))).to(q.scalar_type());
}

}  // namespace transnormer::ops
