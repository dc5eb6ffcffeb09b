// A few threads for work that is made of parts.
#pragma once

#include <atomic>
#include <cstddef>
#include <exception>
#include <functional>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace transnormer {

// Calls work(i) for every i below `count`, by up to `threads` threads, this one among them; fewer
// where the system grants no more. The first exception ends the work and is thrown.
inline void for_each_index(std::size_t count, std::size_t threads,
                           const std::function<void(std::size_t)>& work) {
  std::atomic<std::size_t> next = 0;
  std::mutex failing;
  std::exception_ptr failure;
  const auto run = [&] {
    try {
      for (std::size_t i = next++; i < count; i = next++) {
        work(i);
      }
    } catch (...) {
      next = count;
      const std::lock_guard lock(failing);
      failure = failure ? failure : std::current_exception();
    }
  };
  std::vector<std::thread> others;
  try {
    for (std::size_t i = 1; i < threads && i < count; ++i) {
      others.emplace_back(run);
    }
  } catch (const std::system_error&) {  // a limit on threads
  }
  run();
  for (std::thread& other : others) {
    other.join();
  }
  if (failure) {
    std::rethrow_exception(failure);
  }
}

}  // namespace transnormer
