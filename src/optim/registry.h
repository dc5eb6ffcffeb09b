// The optimizers that a config can name. An optimizer is one file here, or in a test: its settings
// (SettingsOf, config/union.h) with
//   static constexpr std::int64_t kStateSlots;  // numbers kept for each parameter
//   std::unique_ptr<Optimizer> make(const std::vector<NamedTensor>& tensors,
//                                   const OptimizerConfig& config) const;
// where `config` is what any optimizer has (weight_decay), the class (optim/optimizer.h), and at
// the end
//   [[maybe_unused]] const bool kAdded = add_optimizer<MyConfig>();
// which src/optim/CMakeLists.txt names among the sources that are always linked.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "config/config.h"
#include "dist/group.h"
#include "model/weights.h"
#include "optim/optimizer.h"

namespace transnormer {

// What there is to know of an optimizer by its name.
using MakeOptimizer = std::function<std::unique_ptr<Optimizer>(const std::vector<NamedTensor>&,
                                                               const OptimizerConfig&)>;

void add_maker(const std::string& name, std::int64_t state_slots, MakeOptimizer make);

// True, so that it can initialise a variable before main().
template <class S>
bool add_optimizer() {
  add_maker(S::kName, S::kStateSlots,
            [](const std::vector<NamedTensor>& tensors, const OptimizerConfig& config) {
              return std::as_const(config.rule).template get<S>().make(tensors, config);
            });
  return add_alternative<S>(optimizers());
}

// Tensors that are not trainable are left out; the memory of the others moves (FlatParameters).
// Throws std::logic_error where it has not the slots that its settings declare. `shared_by`: see
// Optimizer::make_state.
[[nodiscard]] std::unique_ptr<Optimizer> make_optimizer(const std::vector<NamedTensor>& tensors,
                                                        const OptimizerConfig& config,
                                                        const dist::Group& shared_by = {});

// Numbers that the optimizer keeps for each parameter: what memory is estimated by.
[[nodiscard]] std::int64_t state_slots(const OptimizerConfig& config);

}  // namespace transnormer
