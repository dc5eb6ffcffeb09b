#include "optim/registry.h"

#include <map>
#include <stdexcept>
#include <utility>

#include "util/error.h"
#include "util/units.h"

namespace transnormer {
namespace {

std::map<std::string, OptimizerKind>& kinds() {
  static std::map<std::string, OptimizerKind> by_name;
  return by_name;
}

void require_declared(const std::string& name, const std::vector<StateSlot>& slots,
                      std::int64_t declared) {
  if (std::ssize(slots) != declared) {
    throw std::logic_error(name + ": keeps " + std::to_string(slots.size()) +
                           " numbers for each parameter and declares " + std::to_string(declared));
  }
}

}  // namespace

void add_kind(const std::string& name, OptimizerKind kind) {
  kinds()[name] = std::move(kind);
}

std::unique_ptr<Optimizer> make_optimizer(const std::vector<NamedTensor>& tensors,
                                          const OptimizerConfig& config,
                                          const dist::Group& shared_by) {
  require_shareable(config, shared_by.size());
  const OptimizerKind& kind = kinds().at(config.rule.name());
  std::unique_ptr<Optimizer> made = kind.make(tensors, config);
  require_declared(config.rule.name(), made->state_slots(), kind.state_slots);
  require_declared(config.rule.name(), made->matrix_slots(),
                   kind.matrix_slots.value_or(kind.state_slots));
  made->set_weight_decay(config.weight_decay, config.no_decay);
  made->make_state(shared_by);
  return made;
}

void require_shareable(const OptimizerConfig& config, int processes) {
  if (processes > 1 && kinds().at(config.rule.name()).matrix_slots) {
    throw UserError("distributed.shard_optimizer: the optimizer \"" + config.rule.name() +
                    "\" works on whole matrices, which " + format_count(processes) +
                    " ranks would have to share; set it to false, or choose another "
                    "optimizer.name");
  }
}

OptimizerShape optimizer_shape(const OptimizerConfig& config) {
  const OptimizerKind& kind = kinds().at(config.rule.name());
  return {.state_slots = kind.state_slots,
          .matrix_slots = kind.matrix_slots,
          .averages = config.ema > 0};
}

}  // namespace transnormer
