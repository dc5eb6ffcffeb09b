#include "ops/runtime/short_loop.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

namespace transnormer::ops {
namespace {

using Body = std::function<void(std::int64_t, std::int64_t)>;

constexpr std::int64_t kMostParts = 64;
constexpr auto kAwake = std::chrono::microseconds(100);  // after the last loop

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

struct Loop {
  const Body* body = nullptr;
  std::int64_t count = 0;
  std::int64_t grain = 0;

  void work(std::int64_t part) const { (*body)(part * grain, std::min((part + 1) * grain, count)); }
};

class Helpers {
 public:
  // Helpers are never joined: they own nothing, and at the end of the process they sleep.
  static Helpers& get() {
    static auto* const helpers = new Helpers;
    return *helpers;
  }

  // False where another loop is being worked on. Throws what a body threw, on whatever thread.
  bool run(const Loop& loop, std::int64_t parts, int threads) {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock.owns_lock()) {
      return false;
    }
    start(threads - 1);
    loop_ = loop;
    unfinished_.store(parts, std::memory_order_relaxed);
    const std::uint64_t number = (ticket_.load(std::memory_order_relaxed) >> 32) + 1;
    ticket_.store(number << 32 | static_cast<std::uint64_t>(parts) << 16);
    if (asleep_.load() > 0) {
      ++wake_;
      wake_.notify_all();
    }
    while (work_on_one()) {
    }
    for (int spins = 0; unfinished_.load(std::memory_order_acquire) > 0; ++spins) {
      if (spins < 1000) {
        pause();
      } else {
        std::this_thread::yield();
      }
    }
    if (failure_) {
      std::rethrow_exception(std::exchange(failure_, nullptr));
    }
    return true;
  }

 private:
  void start(int wanted) {
    try {
      for (; started_ < wanted; ++started_) {
        std::thread([this] { help(); }).detach();
      }
    } catch (const std::system_error&) {  // a limit on threads: those that are there have to do
    }
  }

  // False where no part is left. A part that was taken keeps its loop from ending, and so from
  // being replaced.
  bool work_on_one() {
    std::uint64_t ticket = ticket_.load();
    do {
      if (!has_part(ticket)) {
        return false;
      }
    } while (!ticket_.compare_exchange_weak(ticket, ticket + 1));
    try {
      loop_.work(static_cast<std::int64_t>(ticket & 0xFFFF));
    } catch (...) {
      const std::lock_guard lock(failure_mutex_);
      if (!failure_) {
        failure_ = std::current_exception();
      }
    }
    unfinished_.fetch_sub(1, std::memory_order_acq_rel);
    return true;
  }

  [[noreturn]] void help() {
    for (;;) {
      const auto began = std::chrono::steady_clock::now();
      while (std::chrono::steady_clock::now() - began < kAwake) {
        for (int spins = 0; spins < 50 && !has_part(ticket_.load()); ++spins) {
          pause();
        }
        if (has_part(ticket_.load())) {
          break;
        }
      }
      if (!has_part(ticket_.load())) {
        const std::uint32_t seen = wake_.load();
        ++asleep_;
        if (!has_part(ticket_.load())) {
          wake_.wait(seen);
        }
        --asleep_;
      }
      while (work_on_one()) {
      }
    }
  }

  static bool has_part(std::uint64_t ticket) { return (ticket & 0xFFFF) < (ticket >> 16 & 0xFFFF); }

  std::mutex mutex_;
  int started_ = 0;
  Loop loop_;
  std::mutex failure_mutex_;
  std::exception_ptr failure_;  // the first of the loop; the caller's when no part is unfinished
  // The loop's number, how many parts it has, and the next one to be taken: 32, 16, 16 bits.
  alignas(64) std::atomic<std::uint64_t> ticket_ = 0;
  alignas(64) std::atomic<std::int64_t> unfinished_ = 0;
  alignas(64) std::atomic<int> asleep_ = 0;
  std::atomic<std::uint32_t> wake_ = 0;
};

}  // namespace

void short_parallel_for(std::int64_t count, std::int64_t grain, const Body& body) {
  const int threads = at::get_num_threads();
  Loop loop{&body, count, grain};
  if (const std::int64_t least = (count + kMostParts - 1) / kMostParts; loop.grain < least) {
    loop.grain = (least + grain - 1) / grain * grain;
  }
  const std::int64_t parts = (count + loop.grain - 1) / loop.grain;
  if (threads <= 1 || parts <= 1 || !Helpers::get().run(loop, parts, threads)) {
    if (count > 0) {
      body(0, count);
    }
  }
}

}  // namespace transnormer::ops
