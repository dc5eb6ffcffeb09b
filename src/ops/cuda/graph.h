// CUDA graphs, see ops/runtime/cuda_library.h.
#pragma once

namespace transnormer::ops::cuda {

[[nodiscard]] void* capture(void (*body)(void*), void* argument);
void replay(void* graph);
void discard(void* graph);

}  // namespace transnormer::ops::cuda
