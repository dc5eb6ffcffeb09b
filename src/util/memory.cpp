#include "util/memory.h"

#include <malloc.h>
#include <sys/sysinfo.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

namespace transnormer {
namespace {

// A line such as "VmHWM:  1234 kB" of /proc/self/status.
std::int64_t status_bytes(const std::string& key) {
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word) {
    if (word == key) {
      std::int64_t kibibytes = 0;
      status >> kibibytes;
      return kibibytes * 1024;
    }
  }
  return 0;
}

}  // namespace

std::int64_t machine_memory_bytes() {
  struct sysinfo info {};
  sysinfo(&info);
  std::int64_t bytes = static_cast<std::int64_t>(info.totalram) * info.mem_unit;
  std::ifstream limit("/sys/fs/cgroup/memory.max");
  std::int64_t limit_bytes = 0;
  if (limit >> limit_bytes) {
    bytes = std::min(bytes, limit_bytes);
  }
  return bytes;
}

std::int64_t resident_memory_bytes() {
  return status_bytes("VmRSS:");
}
std::int64_t peak_memory_bytes() {
  return status_bytes("VmHWM:");
}

void keep_freed_memory() {
  // What is larger comes and goes whole: kept among small pieces it would leave holes.
  constexpr int kLargest = 32 << 20;
  constexpr int kStep = 64 << 20;  // that the heap grows by
  ::mallopt(M_MMAP_THRESHOLD, kLargest);
  ::mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
  ::mallopt(M_TOP_PAD, kStep);
}

void release_freed_memory() {
  ::malloc_trim(0);
}

void reset_peak_memory() {
  std::ofstream("/proc/self/clear_refs") << "5";
}

}  // namespace transnormer
