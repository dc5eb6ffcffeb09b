// Which parameters have no weight decay (optimizer.no_decay).
#pragma once

#include <string>
#include <vector>

#include "model/weights.h"

namespace transnormer {

// Whether one of the globs ("*.bias", "embed.*"; "*" stands for dots, too) matches a parameter's
// name.
[[nodiscard]] bool is_without_decay(const std::string& name, const std::vector<std::string>& globs);

// A line for each glob that matches none of the parameters, with the word that was probably meant.
// A warning: a list of globs may serve models that differ in what they have.
[[nodiscard]] std::vector<std::string> idle_globs(const std::vector<std::string>& globs,
                                                  const std::vector<NamedTensor>& parameters);

}  // namespace transnormer
