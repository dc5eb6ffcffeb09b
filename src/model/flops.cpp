#include "model/flops.h"

#include "model/block.h"

namespace transnormer {

FlopsPerToken flops_per_token(const TransNormer& model, std::int64_t length) {
  FlopsPerToken flops;
  flops.output = 2 * static_cast<double>(model.output_weight().value().numel());
  for (const auto& block : model.blocks()) {
    const BlockFlops layer = block->flops_per_token(length);
    flops.layers += layer.products;
    flops.attention += layer.attention;
  }
  return flops;
}

}  // namespace transnormer
