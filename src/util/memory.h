// The memory of the machine and of this process, in bytes, by the operating system's count.
#pragma once

#include <cstdint>

namespace transnormer {

// The machine's, or a lower limit of its control groups or of the process (ulimit -v, -d).
[[nodiscard]] std::int64_t machine_memory_bytes();
// What the machine could give to processes without swapping, this one's own included.
[[nodiscard]] std::int64_t free_memory_bytes();
[[nodiscard]] std::int64_t resident_memory_bytes();
[[nodiscard]] std::int64_t peak_memory_bytes();
// Makes the allocator keep what is freed instead of giving it back to the system, so that a
// training step finds the memory of the step before. For the whole process, before it starts
// threads.
void keep_freed_memory();
// Gives back what is free.
void release_freed_memory();
// Starts peak_memory_bytes() anew, where the kernel allows it.
void reset_peak_memory();

}  // namespace transnormer
