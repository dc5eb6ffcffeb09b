#include "model/flops.h"

#include "model/attention/attention.h"
#include "model/weights.h"

namespace transnormer {

FlopsPerToken flops_per_token(const TransNormer& model, std::int64_t length) {
  FlopsPerToken flops;
  flops.output = 2 * static_cast<double>(model.output_weight().value().numel());
  for (const NamedTensor& named : named_tensors(model)) {
    if (named.name.starts_with("layers.") && named.tensor.dim() == 2) {
      flops.layers += 2 * static_cast<double>(named.tensor.numel());
    }
  }
  for (const Attention* attention : model.attentions()) {
    flops.attention += attention->flops_per_token(length);
  }
  return flops;
}

}  // namespace transnormer
