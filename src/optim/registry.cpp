#include "optim/registry.h"

#include <map>
#include <utility>

namespace transnormer {
namespace {

std::map<std::string, MakeOptimizer>& makers() {
  static std::map<std::string, MakeOptimizer> by_name;
  return by_name;
}

}  // namespace

void add_maker(const std::string& name, MakeOptimizer make) {
  makers()[name] = std::move(make);
}

std::unique_ptr<Optimizer> make_optimizer(const std::vector<NamedTensor>& tensors,
                                          const OptimizerConfig& config) {
  return makers().at(config.rule.name())(tensors, config);
}

}  // namespace transnormer
