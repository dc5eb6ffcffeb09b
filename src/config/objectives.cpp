#include "config/objectives.h"

#include <algorithm>

namespace transnormer {
namespace {

std::deque<std::string>& names() {
  static std::deque<std::string> known{"causal"};
  return known;
}

}  // namespace

const std::deque<std::string>& objective_names() {
  return names();
}

void add_objective_name(const std::string& name) {
  if (std::find(names().begin(), names().end(), name) == names().end()) {
    names().push_back(name);
  }
}

}  // namespace transnormer
