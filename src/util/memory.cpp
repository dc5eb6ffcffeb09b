#include "util/memory.h"

#include <malloc.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <new>
#include <string>

#include "util/cgroup.h"

namespace transnormer {
namespace {

// A line such as "VmHWM:  1234 kB" of /proc/self/status, or another file of that kind; 0 where
// there is none.
std::int64_t status_bytes(const std::string& key, const char* file = "/proc/self/status") {
  std::ifstream status(file);
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

// Near a limit, memory is taken as it is needed: a step may be refused where there is still some.
// With that done, there is none.
void grow_as_needed() {
  ::mallopt(M_TOP_PAD, 0);
  std::set_new_handler(nullptr);
}

}  // namespace

std::int64_t machine_memory_bytes() {
  struct sysinfo info {};
  sysinfo(&info);
  std::int64_t bytes = static_cast<std::int64_t>(info.totalram) * info.mem_unit;
  bytes = std::min(bytes, cgroup_memory_bytes().value_or(bytes));
  for (const auto resource : {RLIMIT_AS, RLIMIT_DATA}) {
    struct rlimit limit {};
    if (::getrlimit(resource, &limit) == 0 && limit.rlim_cur < static_cast<rlim_t>(bytes)) {
      bytes = static_cast<std::int64_t>(limit.rlim_cur);
    }
  }
  return bytes;
}

std::int64_t free_memory_bytes() {
  const std::int64_t free = status_bytes("MemAvailable:", "/proc/meminfo");
  return free > 0 ? free + resident_memory_bytes() : machine_memory_bytes();
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
  std::set_new_handler(grow_as_needed);
}

void release_freed_memory() {
  ::malloc_trim(0);
}

void reset_peak_memory() {
  std::ofstream("/proc/self/clear_refs") << "5";
}

}  // namespace transnormer
