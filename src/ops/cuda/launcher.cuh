// Starts bodies of kernels on the GPU; the promises are those of ops/cuda/table.h.
#pragma once

#include <cstdint>
#include <cstring>

#include "ops/cuda/runtime.h"

namespace transnormer::ops::cuda {

inline constexpr int kWarp = 32;
inline constexpr int kThreads = 256;  // of a block, where the body does not ask
inline constexpr int kElements = 4;   // that a thread of run_elementwise has on their way at once
inline constexpr std::int64_t kMostBlocks = 1 << 20;  // of a grid; what is more takes turns

// The value of the lane whose number differs in the bits of `distance`.
template <typename T>
__device__ T from_lane(T x, int distance) {
  static_assert(sizeof(T) % sizeof(int) == 0);
  int words[sizeof(T) / sizeof(int)];
  std::memcpy(words, &x, sizeof(T));
  for (int& word : words) {
    word = __shfl_xor_sync(0xFFFFFFFF, word, distance);
  }
  std::memcpy(&x, words, sizeof(T));
  return x;
}

template <typename T, typename Combine>
__device__ T reduced_in_warp(T x, Combine combine) {
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    x = combine(x, from_lane(x, distance));
  }
  return x;
}

struct WarpGroup {
  static constexpr int size = kWarp;

  template <typename F>
  __device__ void each(F f) const {
    f(static_cast<int>(threadIdx.x % kWarp));
    __syncwarp();
  }

  // All lanes take the first one's result, which may differ from theirs in the last bit.
  template <typename F, typename Combine>
  __device__ auto reduce(F f, Combine combine) const {
    auto x = reduced_in_warp(f(static_cast<int>(threadIdx.x % kWarp)), combine);
    int words[sizeof(x) / sizeof(int)];
    std::memcpy(words, &x, sizeof(x));
    for (int& word : words) {
      word = __shfl_sync(0xFFFFFFFF, word, 0);
    }
    std::memcpy(&x, words, sizeof(x));
    __syncwarp();
    return x;
  }
};

struct BlockGroup {
  int size;

  template <typename F>
  __device__ void each(F f) const {
    f(static_cast<int>(threadIdx.x));
    __syncthreads();
  }

  template <typename F, typename Combine>
  __device__ auto reduce(F f, Combine combine) const {
    using T = decltype(f(0));
    alignas(16) __shared__ unsigned char memory[kWarp * sizeof(T)];  // a block has 32 warps at most
    T* of_warps = reinterpret_cast<T*>(memory);
    const T own = reduced_in_warp(f(static_cast<int>(threadIdx.x)), combine);
    if (threadIdx.x % kWarp == 0) {
      of_warps[threadIdx.x / kWarp] = own;
    }
    __syncthreads();
    T result = of_warps[0];
    for (int warp = 1; warp < size / kWarp; ++warp) {
      result = combine(result, of_warps[warp]);
    }
    __syncthreads();
    return result;
  }

  template <typename F>
  __device__ void rows(int count, F f) const {
    for (int i = static_cast<int>(threadIdx.x) / kWarp; i < count; i += size / kWarp) {
      f(WarpGroup{}, i);
    }
    __syncthreads();
  }
};

template <typename Body>
__global__ void __launch_bounds__(kThreads) run_elements(std::int64_t count, const Body body) {
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += step) {
    body(i);
  }
}

// A thread's elements are kThreads apart; those of a step are all read before any is written.
template <typename Body>
__global__ void __launch_bounds__(kThreads) run_elementwise(std::int64_t count, const Body body) {
  constexpr std::int64_t kReach = std::int64_t{kThreads} * kElements;
  for (std::int64_t first = std::int64_t{blockIdx.x} * kReach + threadIdx.x; first < count;
       first += std::int64_t{gridDim.x} * kReach) {
    if (first + (kElements - 1) * kThreads < count) {
      decltype(body.make(0)) made[kElements];
#pragma unroll
      for (int j = 0; j < kElements; ++j) {
        made[j] = body.make(first + j * kThreads);
      }
#pragma unroll
      for (int j = 0; j < kElements; ++j) {
        body.put(first + j * kThreads, made[j]);
      }
      continue;
    }
    for (std::int64_t i = first; i < count; i += kThreads) {
      body.put(i, body.make(i));
    }
  }
}

template <typename Body>
__global__ void __launch_bounds__(kThreads) run_rows(std::int64_t count, const Body body) {
  constexpr int kRows = kThreads / kWarp;
  const std::int64_t step = std::int64_t{gridDim.x} * kRows;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kRows + threadIdx.x / kWarp; i < count;
       i += step) {
    body(WarpGroup{}, i);
  }
}

template <typename Body>
__global__ void run_blocks(std::int64_t count, const Body body) {
  for (std::int64_t i = blockIdx.x; i < count; i += gridDim.x) {
    body(BlockGroup{static_cast<int>(blockDim.x)}, i);
  }
}

template <typename Body>
__global__ void run_blocks_shared(std::int64_t count, const Body body) {
  extern __shared__ float shared[];
  for (std::int64_t i = blockIdx.x; i < count; i += gridDim.x) {
    body(BlockGroup{static_cast<int>(blockDim.x)}, i, shared);
  }
}

struct DeviceLauncher {
  template <typename T>
  class Workspace {
   public:
    explicit Workspace(std::int64_t count) : memory_(static_cast<std::size_t>(count) * sizeof(T)) {}
    [[nodiscard]] T* data() const { return static_cast<T*>(memory_.data()); }

   private:
    DeviceMemory memory_;
  };

  template <typename Body>
  static void elements(std::int64_t count, const Body& body) {
    launch(run_elements<Body>, (count + kThreads - 1) / kThreads, kThreads, 0, count, body);
  }

  template <typename Body>
  static void elementwise(std::int64_t count, const Body& body) {
    constexpr std::int64_t kReach = std::int64_t{kThreads} * kElements;
    launch(run_elementwise<Body>, (count + kReach - 1) / kReach, kThreads, 0, count, body);
  }

  template <typename Body>
  static void rows(std::int64_t count, const Body& body) {
    constexpr std::int64_t kRows = kThreads / kWarp;
    launch(run_rows<Body>, (count + kRows - 1) / kRows, kThreads, 0, count, body);
  }

  template <typename Body>
  static void blocks(std::int64_t count, int threads, const Body& body) {
    launch(run_blocks<Body>, count, threads, 0, count, body);
  }

  template <typename Body>
  static void blocks(std::int64_t count, int threads, std::int64_t floats, const Body& body) {
    const auto bytes = static_cast<std::size_t>(floats) * sizeof(float);
    check(cudaFuncSetAttribute(reinterpret_cast<const void*>(run_blocks_shared<Body>),
                               cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(bytes)));
    launch(run_blocks_shared<Body>, count, threads, bytes, count, body);
  }

 private:
  template <typename Body>
  static void launch(void (*kernel)(std::int64_t, const Body), std::int64_t blocks, int threads,
                     std::size_t shared_bytes, std::int64_t count, const Body& body) {
    if (blocks == 0) {
      return;
    }
    const auto grid = static_cast<unsigned>(blocks < kMostBlocks ? blocks : kMostBlocks);
    kernel<<<grid, static_cast<unsigned>(threads), shared_bytes, current_stream()>>>(count, body);
    check(cudaGetLastError());
  }
};

}  // namespace transnormer::ops::cuda
