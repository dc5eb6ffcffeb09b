#include "analyze/weights.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <string>

#include "model/block.h"
#include "util/error.h"

namespace transnormer {
namespace {

class WeightsOfLayers final : public AttentionObserver {
 public:
  WeightsOfLayers(const TransNormer& model, const Selection& selection,
                  const std::function<void(std::int64_t, const at::Tensor&)>& each)
      : model_(model), selection_(selection), each_(each) {}

  void on_layer(std::int64_t layer, const at::Tensor& x, const ForwardContext& context) override {
    if (!selection_.has_layer(layer)) {
      return;
    }
    ForwardContext unobserved = context;
    unobserved.observer = nullptr;
    each_(layer, model_.blocks()[static_cast<std::size_t>(layer)]
                     ->attention_weights(x, unobserved)
                     .squeeze(0));
  }
  void on_attention(const AttentionInside&) override {}
  void on_normed(const at::Tensor&) override {}

 private:
  const TransNormer& model_;
  const Selection& selection_;
  const std::function<void(std::int64_t, const at::Tensor&)>& each_;
};

}  // namespace

bool Selection::has_layer(std::int64_t layer) const {
  return std::binary_search(layers.begin(), layers.end(), layer);
}

std::vector<std::int64_t> Selection::heads_of(std::int64_t layer, std::int64_t count) const {
  if (heads.empty()) {
    std::vector<std::int64_t> all;
    for (std::int64_t head = 0; head < count; ++head) {
      all.push_back(head);
    }
    return all;
  }
  if (heads.back() >= count) {
    throw UserError("--heads: expected heads from 0 to " + std::to_string(count - 1) +
                    " of layer " + std::to_string(layer) + ", got " + std::to_string(heads.back()));
  }
  return heads;
}

at::Tensor shares(const at::Tensor& weights) {
  const at::Tensor size = weights.to(at::kDouble).abs();
  const at::Tensor sum = size.sum(-1, /*keepdim=*/true);
  return size / at::where(sum > 0, sum, at::ones_like(sum));
}

void for_each_weights(
    TransNormer& model, const at::Tensor& inputs, const Selection& selection,
    const std::function<void(std::int64_t layer, const at::Tensor& weights)>& each) {
  const at::NoGradGuard no_gradients;
  WeightsOfLayers observer(model, selection, each);
  ForwardContext context;
  context.observer = &observer;
  (void)model.forward(inputs, context);
}

}  // namespace transnormer
