// The names that train.objective can have; what stands behind each is in task/objective.h.
#pragma once

#include <deque>
#include <string>

namespace transnormer {

// "causal", and what was added; addresses of the names stay valid.
[[nodiscard]] const std::deque<std::string>& objective_names();
void add_objective_name(const std::string& name);

}  // namespace transnormer
