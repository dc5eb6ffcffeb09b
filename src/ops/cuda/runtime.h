// What the kernels' launcher asks of LibTorch: its stream and its memory. Free of LibTorch's
// headers, which nvcc takes half a minute to read.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

namespace transnormer::ops::cuda {

// LibTorch's current stream of the current device.
[[nodiscard]] cudaStream_t current_stream();

// Throws c10::Error.
void check(cudaError_t status);

// Of a block of threads, where it asks for the most.
[[nodiscard]] std::size_t most_shared_bytes();

// Memory of LibTorch's allocator. Released, it serves others only behind what the current stream
// was given before.
class DeviceMemory {
 public:
  explicit DeviceMemory(std::size_t bytes);
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  [[nodiscard]] void* data() const { return data_; }

 private:
  void* data_;
};

}  // namespace transnormer::ops::cuda
