#include "ops/attention/weight_dropout.h"

#include <ATen/ATen.h>

#include <vector>

namespace transnormer::ops {
namespace {

constexpr std::int64_t kMostTokens = 1LL << 24;  // of a sample

}  // namespace

at::Tensor weight_dropout(const WeightShape& shape, const Drop& drop, const Visibility& visibility,
                          const at::Device& device) {
  TORCH_CHECK(shape.time <= kMostTokens, "weight_dropout: at most ", kMostTokens, " tokens, got ",
              shape.time);
  std::vector<at::Tensor> by_key;
  for (std::int64_t key = shape.first_key; key < shape.first_key + shape.keys; ++key) {
    DropoutKey numbered = drop.key;
    numbered.first_element += key * kMostTokens * shape.heads;
    by_key.push_back(
        dropout_mask(shape.batch, shape.time * shape.heads, drop.p, numbered, device).view({-1}));
  }
  const at::Tensor mask =
      at::stack(by_key).t().contiguous().view({shape.batch, shape.time, shape.heads, shape.keys});
  if (!visibility.padding.defined()) {
    return mask;
  }
  const at::Tensor number = visibility.padding.logical_not().cumsum(1).sub_(1).clamp_min_(0);
  const at::Tensor sample = at::arange(shape.batch, number.options()).unsqueeze(1);
  return mask.index({sample, number});
}

}  // namespace transnormer::ops
