// The optimizers that a config can name.
#pragma once

#include <memory>
#include <vector>

#include "config/config.h"
#include "model/weights.h"
#include "optim/optimizer.h"

namespace transnormer {

// Tensors that are not trainable are left out; the memory of the others moves (FlatParameters).
[[nodiscard]] std::unique_ptr<Optimizer> make_optimizer(const std::vector<NamedTensor>& tensors,
                                                        const OptimizerConfig& config);

}  // namespace transnormer
