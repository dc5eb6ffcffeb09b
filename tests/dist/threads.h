// A group of threads in the place of processes.
#pragma once

#include <ATen/Parallel.h>

#include <chrono>
#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <vector>

#include "dist/gloo.h"
#include "dist/group.h"

namespace transnormer::dist {

// LibTorch's record of collectives notes a group's first one without a lock, which is for processes
// of one thread. Read when the first group is made.
[[maybe_unused]] inline const int kNoRecord =
    ::setenv("TORCH_FR_BUFFER_SIZE", "0", /*overwrite=*/1);

// Runs `body` in `size` threads, each with its place in one group; rethrows the first failure.
inline void with_group(int size, const std::function<void(const Group&)>& body) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::vector<std::exception_ptr> failures(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        const Group group(rank, size,
                          gloo_engine(store, rank, size, "127.0.0.1", std::chrono::seconds(60)),
                          std::make_shared<Progress>());
        body(group);
        group.meet();
      } catch (...) {
        failures[static_cast<std::size_t>(rank)] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (const std::exception_ptr& failure : failures) {
    if (failure) {
      std::rethrow_exception(failure);
    }
  }
}

}  // namespace transnormer::dist
