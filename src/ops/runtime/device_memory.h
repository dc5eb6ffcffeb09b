// The memory of a device: the machine's and this process's for the CPU, else by the library's
// allocator.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace transnormer::ops {

// All that the device has. On at::kMeta, what LibTorch can describe.
[[nodiscard]] double device_memory_bytes(at::Device device);

// What this process holds there.
[[nodiscard]] std::int64_t used_memory_bytes(at::Device device);

// The most that this process held since construction, which gives back what is free before.
class PeakMemory {
 public:
  explicit PeakMemory(at::Device device);
  [[nodiscard]] std::int64_t bytes() const;

 private:
  at::Device device_;
};

}  // namespace transnormer::ops
