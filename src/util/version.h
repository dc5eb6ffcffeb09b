// The program's version, as CMakeLists.txt states it.
#pragma once

namespace transnormer {

[[nodiscard]] const char* program_version();  // "0.1.0"

}  // namespace transnormer
