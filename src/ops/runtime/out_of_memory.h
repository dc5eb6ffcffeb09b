// Whether a fault is that memory has ended, of the machine or of a GPU.
#pragma once

#include <exception>

namespace transnormer::ops {

[[nodiscard]] bool is_out_of_memory(const std::exception& error);

}  // namespace transnormer::ops
