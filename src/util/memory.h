// The memory of the machine and of this process, in bytes, by the operating system's count.
#pragma once

#include <cstdint>

namespace transnormer {

[[nodiscard]] std::int64_t
machine_memory_bytes();  // the machine's, or the container's limit if lower
[[nodiscard]] std::int64_t resident_memory_bytes();
[[nodiscard]] std::int64_t peak_memory_bytes();
// Starts peak_memory_bytes() anew, where the kernel allows it.
void reset_peak_memory();

}  // namespace transnormer
