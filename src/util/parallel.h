// A few threads for work that is made of parts.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <functional>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

namespace transnormer {

// Starts up to `count` threads that run `body(number)`, from 0 on: as many as the system grants.
// They are waited for when what is returned goes.
template <typename Body>
[[nodiscard]] std::vector<std::jthread> start_threads(std::size_t count, const Body& body) {
  std::vector<std::jthread> threads;
  threads.reserve(count);
  try {
    for (std::size_t i = 0; i < count; ++i) {
      threads.emplace_back(body, i);
    }
  } catch (const std::system_error&) {  // a limit on threads
  } catch (const std::bad_alloc&) {     // or on memory
  }
  return threads;
}

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
  {
    const auto others = start_threads(std::min(threads, count) - (count > 0 ? 1 : 0),
                                      [&run](std::size_t) { run(); });
    run();
  }
  if (failure) {
    std::rethrow_exception(failure);
  }
}

}  // namespace transnormer
