// Work for the GPU, recorded once and replayed, see ops/cuda_library.h.
#pragma once

namespace transnormer::ops::cuda {

[[nodiscard]] void* record(void (*body)(void*), void* argument);
void replay(void* recording);
void discard(void* recording);

}  // namespace transnormer::ops::cuda
