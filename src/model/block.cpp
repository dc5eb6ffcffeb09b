#include "model/block.h"

#include "model/linear.h"
#include "model/recompute.h"

namespace transnormer {

at::Tensor Block::forward_recomputed(const at::Tensor& x, const ForwardContext& context) {
  return recomputed(x, parameters(), [this, context](const at::Tensor& in) {
    return forward(in, context, nullptr);
  });
}

BlockFlops Block::flops_per_token(std::int64_t) const {
  return {.products = product_flops(*this)};
}

double product_flops(const torch::nn::Module& module) {
  double flops = 0;
  for (const auto& part : module.modules(/*include_self=*/false)) {
    if (const auto* linear = dynamic_cast<const Linear*>(part.get())) {
      flops += 2 * static_cast<double>(linear->weight().numel());
    }
  }
  return flops;
}

}  // namespace transnormer
