#include "optim/registry.h"

#include <map>
#include <stdexcept>
#include <utility>

namespace transnormer {
namespace {

struct Kind {
  std::int64_t state_slots = 0;
  MakeOptimizer make;
};

std::map<std::string, Kind>& kinds() {
  static std::map<std::string, Kind> by_name;
  return by_name;
}

}  // namespace

void add_maker(const std::string& name, std::int64_t state_slots, MakeOptimizer make) {
  kinds()[name] = {state_slots, std::move(make)};
}

std::unique_ptr<Optimizer> make_optimizer(const std::vector<NamedTensor>& tensors,
                                          const OptimizerConfig& config,
                                          const dist::Group& shared_by) {
  const Kind& kind = kinds().at(config.rule.name());
  std::unique_ptr<Optimizer> made = kind.make(tensors, config);
  if (made->slots() != kind.state_slots) {
    throw std::logic_error(config.rule.name() + ": keeps " + std::to_string(made->slots()) +
                           " numbers for each parameter and declares " +
                           std::to_string(kind.state_slots));
  }
  made->make_state(shared_by);
  return made;
}

std::int64_t state_slots(const OptimizerConfig& config) {
  return kinds().at(config.rule.name()).state_slots;
}

}  // namespace transnormer
