#include "ops/cuda/graph.h"

#include <ATen/cuda/CUDAEvent.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <memory>

namespace transnormer::ops::cuda {
namespace {

// Makes one stream wait for what another was given so far.
void wait_for(c10::cuda::CUDAStream waiting, c10::cuda::CUDAStream earlier) {
  at::cuda::CUDAEvent event;
  event.record(earlier);
  event.block(waiting);
}

}  // namespace

void* capture(void (*body)(void*), void* argument) {
  auto graph = std::make_unique<at::cuda::CUDAGraph>();
  // The graph's memory is its own: what the allocator keeps from earlier passes would lie idle
  // beside it.
  c10::cuda::device_synchronize();
  c10::cuda::CUDACachingAllocator::emptyCache();
  const c10::cuda::CUDAStream caller = c10::cuda::getCurrentCUDAStream();
  // One stream for all captures: cuBLAS keeps a workspace for every stream that it has seen.
  static const c10::cuda::CUDAStream own = c10::cuda::getStreamFromPool();
  wait_for(own, caller);
  {
    const c10::cuda::CUDAStreamGuard guard(own);
    graph->capture_begin();
    try {
      body(argument);
    } catch (...) {
      // The stream must not stay in capture; what was captured is thrown away with the graph.
      try {
        graph->capture_end();
      } catch (const c10::Error&) {
      }
      throw;
    }
    graph->capture_end();
  }
  wait_for(caller, own);
  return graph.release();
}

void replay(void* graph) {
  static_cast<at::cuda::CUDAGraph*>(graph)->replay();
}

void discard(void* graph) {
  delete static_cast<at::cuda::CUDAGraph*>(graph);
}

}  // namespace transnormer::ops::cuda
