#include "util/processors.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <latch>
#include <optional>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#include "util/cgroup.h"
#include "util/error.h"
#include "util/units.h"

namespace transnormer {
namespace {

int processors_of_affinity() {
  const std::string named = affinity();
  const auto count = std::ranges::count(named, '1');
  return count > 0 ? static_cast<int>(count)
                   : static_cast<int>(std::thread::hardware_concurrency());
}

// OMP_NUM_THREADS may hold a list, one number a level of nesting: the first counts.
int limit_in_environment(const char* variable, int otherwise) {
  const char* const text = std::getenv(variable);
  const std::string_view first =
      text == nullptr ? "" : std::string_view(text).substr(0, std::string_view(text).find(','));
  const std::int64_t limit = parse_integer(first).value_or(0);
  return limit > 0 && limit < otherwise ? static_cast<int>(limit) : otherwise;
}

// Threads that take memory get a share of the address space of their own; so does this one.
void take_memory() {
  void* const some = std::malloc(1);
  asm volatile("" : : "r"(some) : "memory");  // else the compiler sees that it is of no use
  std::free(some);
}

}  // namespace

std::string affinity() {
  constexpr int kMostProcessors = 1 << 16;
  std::string named;
  for (int room = 1024; room <= kMostProcessors; room *= 2) {  // fails where the room is too small
    cpu_set_t* const set = CPU_ALLOC(room);
    const std::size_t size = CPU_ALLOC_SIZE(room);
    const bool fits = ::sched_getaffinity(0, size, set) == 0;
    for (int processor = 0; fits && processor < room; ++processor) {
      named += CPU_ISSET_S(static_cast<std::size_t>(processor), size, set) ? '1' : '0';
    }
    CPU_FREE(set);
    if (fits) {
      return named;
    }
  }
  return named;
}

int processors() {
  int count = processors_of_affinity();
  if (const std::optional<double> quota = cgroup_processors(); quota && *quota < count) {
    count = static_cast<int>(*quota);
  }
  return std::max(count, 1);
}

int allowed_processors() {
  return processors_of_one(1);
}

int processors_of_one(int processes) {
  const int part = std::max(processors() / std::max(processes, 1), 1);
  const char* const asked = std::getenv("OMP_NUM_THREADS");
  const bool by_torchrun = std::getenv("TORCHELASTIC_RUN_ID") != nullptr && asked != nullptr &&
                           std::string_view(asked) == "1";
  return by_torchrun ? part
                     : limit_in_environment("OMP_THREAD_LIMIT",
                                            limit_in_environment("OMP_NUM_THREADS", part));
}

int useful_threads(std::int64_t asked, int processes) {
  const int allowed = processors_of_one(processes);
  return asked > 0 && asked < allowed ? static_cast<int>(asked) : allowed;
}

// OpenMP ends threads and starts new ones as the work asks, so that old and new ones are there at a
// time.
void require_threads(int threads) {
  const int most = threads > 1 ? 2 * threads : 1;
  std::latch all_there(1);
  std::atomic<int> started = 1;
  std::vector<std::thread> others;
  std::string reason;
  try {
    others.reserve(static_cast<std::size_t>(most));
    for (int thread = 1; thread < most; ++thread) {
      others.emplace_back([&] {
        take_memory();
        ++started;
        started.notify_one();
        all_there.wait();
      });
      started.wait(thread);
    }
  } catch (const std::system_error& error) {
    reason = error.code().message();
  } catch (const std::bad_alloc&) {
    reason = "no memory for another";
  }
  all_there.count_down();
  for (std::thread& other : others) {
    other.join();
  }
  if (!reason.empty()) {
    throw UserError("train.threads: " + std::to_string(threads) + " threads need room for " +
                    std::to_string(most) + ", the system grants " +
                    std::to_string(others.size() + 1) + " (" + reason +
                    "); raise its limits (ulimit -u and -v), or set train.threads or "
                    "OMP_NUM_THREADS lower");
  }
}

}  // namespace transnormer
