// modeling_transnormer.py, which every export holds: the model in Python.
#pragma once

namespace transnormer {

[[nodiscard]] const char* modeling_source();

}  // namespace transnormer
