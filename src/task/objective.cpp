#include "task/objective.h"

#include <map>
#include <stdexcept>
#include <utility>

#include "config/objectives.h"
#include "task/causal.h"

namespace transnormer {
namespace {

using Objectives = std::map<std::string, std::unique_ptr<const Objective>>;

Objectives& objectives() {
  static Objectives known = [] {
    Objectives built_in;
    built_in.emplace("causal", std::make_unique<CausalObjective>());
    return built_in;
  }();
  return known;
}

}  // namespace

const Objective& objective(const std::string& name) {
  return *objectives().at(name);
}

void add_objective(const std::string& name, std::unique_ptr<const Objective> added) {
  if (!objectives().emplace(name, std::move(added)).second) {
    throw std::logic_error("the objective " + name + " is there already");
  }
  add_objective_name(name);
}

}  // namespace transnormer
