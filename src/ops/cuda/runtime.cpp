#include "ops/cuda/runtime.h"

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

namespace transnormer::ops::cuda {

cudaStream_t current_stream() {
  return c10::cuda::getCurrentCUDAStream().stream();
}

void check(cudaError_t status) {
  C10_CUDA_CHECK(status);
}

std::size_t most_shared_bytes() {
  int device = 0;
  int bytes = 0;
  check(cudaGetDevice(&device));
  check(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  return static_cast<std::size_t>(bytes);
}

DeviceMemory::DeviceMemory(std::size_t bytes)
    : data_(c10::cuda::CUDACachingAllocator::raw_alloc_with_stream(bytes, current_stream())) {}

DeviceMemory::~DeviceMemory() {
  c10::cuda::CUDACachingAllocator::raw_delete(data_);
}

}  // namespace transnormer::ops::cuda
