// Runs the bodies of the GPU's kernels (src/ops/cuda) on the host, one thread after another, in the
// order that the GPU's launcher promises: what comes before the end of a phase is done by all
// threads before any begins the next.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "ops/cuda/table.h"

namespace transnormer::ops {

// The order of the threads inside a phase, which nothing may depend on.
inline bool emulation_runs_backwards = false;

class EmulatedGroup {
 public:
  explicit EmulatedGroup(int threads) : size(threads) {}

  template <typename F>
  void each(F f) const {
    for (int i = 0; i < size; ++i) {
      f(emulation_runs_backwards ? size - 1 - i : i);
    }
  }

  // As the GPU does it: the butterfly inside each warp, then the warps in turn.
  template <typename F, typename Combine>
  auto reduce(F f, Combine combine) const {
    using T = decltype(f(0));
    std::vector<T> values(static_cast<std::size_t>(size));
    each([&](int thread) { values[static_cast<std::size_t>(thread)] = f(thread); });
    for (std::size_t warp = 0; warp < values.size(); warp += 32) {
      for (std::size_t distance = 16; distance > 0; distance /= 2) {
        const std::vector<T> before = values;
        for (std::size_t lane = 0; lane < 32; ++lane) {
          values[warp + lane] = combine(before[warp + lane], before[warp + (lane ^ distance)]);
        }
      }
    }
    T result = values[0];
    for (std::size_t warp = 32; warp < values.size(); warp += 32) {
      result = combine(result, values[warp]);
    }
    return result;
  }

  template <typename F>
  void rows(int count, F f) const {
    for (int i = 0; i < count; ++i) {
      f(EmulatedGroup(32), emulation_runs_backwards ? count - 1 - i : i);
    }
  }

  int size;
};

struct EmulatedLauncher {
  // Filled with what no result may depend on.
  template <typename T>
  class Workspace {
   public:
    explicit Workspace(std::int64_t count)
        : values_(static_cast<std::size_t>(count), std::numeric_limits<T>::quiet_NaN()) {}
    [[nodiscard]] T* data() const { return values_.data(); }

   private:
    mutable std::vector<T> values_;
  };

  template <typename Body>
  static void elements(std::int64_t count, const Body& body) {
    for (std::int64_t i = 0; i < count; ++i) {
      body(emulation_runs_backwards ? count - 1 - i : i);
    }
  }
  template <typename Body>
  static void elementwise(std::int64_t count, const Body& body) {
    elements(count, [&](std::int64_t i) { body.put(i, body.make(i)); });
  }
  template <typename Body>
  static void rows(std::int64_t count, const Body& body) {
    elements(count, [&](std::int64_t row) { body(EmulatedGroup(32), row); });
  }
  template <typename Body>
  static void blocks(std::int64_t count, int threads, const Body& body) {
    elements(count, [&](std::int64_t i) { body(EmulatedGroup(threads), i); });
  }
  // With `floats` of memory that a block's threads share.
  template <typename Body>
  static void blocks(std::int64_t count, int threads, std::int64_t floats, const Body& body) {
    elements(count, [&](std::int64_t i) {
      const Workspace<float> shared(floats);
      body(EmulatedGroup(threads), i, shared.data());
    });
  }
};

// The GPU's kernels, emulated.
[[nodiscard]] inline const kernels::Kernels& emulated_kernels() {
  static const kernels::Kernels table = cuda::table_of<EmulatedLauncher>("emulated");
  return table;
}

}  // namespace transnormer::ops
