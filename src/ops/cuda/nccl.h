// LibTorch's NCCL, see ops/runtime/cuda_library.h.
#pragma once

#include "ops/runtime/cuda_library.h"

namespace transnormer::ops::cuda {

// What makes an engine; null where NCCL's header was not there.
[[nodiscard]] decltype(CudaLibrary::nccl_engine) nccl_engine();

}  // namespace transnormer::ops::cuda
