// The optimizers that a config can name. An optimizer is one file here, or in a test: its settings
// (SettingsOf, config/union.h) with
//   static constexpr std::int64_t kStateSlots;   // numbers kept for each parameter
//   static constexpr std::int64_t kMatrixSlots;  // .. of hidden matrices, where that is another
//                                                // number; such a one cannot be shared
//   std::unique_ptr<Optimizer> make(const std::vector<NamedTensor>& tensors,
//                                   const OptimizerConfig& config) const;
// where `config` is what any optimizer has, the class (optim/optimizer.h), and at
// the end
//   [[maybe_unused]] const bool kAdded = add_optimizer<MyConfig>();
// which src/optim/CMakeLists.txt names among the sources that are always linked.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "config/config.h"
#include "dist/group.h"
#include "model/footprint.h"
#include "model/weights.h"
#include "optim/optimizer.h"

namespace transnormer {

// What there is to know of an optimizer by its name.
using MakeOptimizer = std::function<std::unique_ptr<Optimizer>(const std::vector<NamedTensor>&,
                                                               const OptimizerConfig&)>;

struct OptimizerKind {
  std::int64_t state_slots = 0;
  std::optional<std::int64_t> matrix_slots;
  MakeOptimizer make;
};

void add_kind(const std::string& name, OptimizerKind kind);

// True, so that it can initialise a variable before main().
template <class S>
bool add_optimizer() {
  OptimizerKind kind{
      .state_slots = S::kStateSlots,
      .matrix_slots = {},
      .make = [](const std::vector<NamedTensor>& tensors, const OptimizerConfig& config) {
        return std::as_const(config.rule).template get<S>().make(tensors, config);
      }};
  if constexpr (requires { S::kMatrixSlots; }) {
    kind.matrix_slots = S::kMatrixSlots;
  }
  add_kind(S::kName, std::move(kind));
  return add_alternative<S>(optimizers());
}

// Tensors that are not trainable are left out; the memory of the others moves (FlatParameters).
// Throws std::logic_error where it has not the slots that its settings declare. `shared_by`: see
// Optimizer::make_state; UserError where it cannot be shared.
[[nodiscard]] std::unique_ptr<Optimizer> make_optimizer(const std::vector<NamedTensor>& tensors,
                                                        const OptimizerConfig& config,
                                                        const dist::Group& shared_by = {});

// Throws UserError where the optimizer cannot be shared by so many processes.
void require_shareable(const OptimizerConfig& config, int processes);

// What memory is estimated by.
[[nodiscard]] OptimizerShape optimizer_shape(const OptimizerConfig& config);

}  // namespace transnormer
