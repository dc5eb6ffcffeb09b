// Tensors by name, as a task makes them of samples and a pass reads them.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>

namespace transnormer {

using Tensors = std::map<std::string, at::Tensor>;

}  // namespace transnormer
