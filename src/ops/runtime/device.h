// Chooses the device and prepares LibTorch for it.
#pragma once

#include <ATen/core/Tensor.h>

#include "config/config.h"

namespace transnormer::ops {

// Must come before any other use of LibTorch that may ask for CUDA: the CUDA library is loaded
// here, where it is wanted. Of several GPUs it is that of this number, and becomes the current
// device of the calling thread. `cuda` without a usable GPU throws UserError; `automatic` falls
// back to the CPU. A warning where a GPU is there and cannot be used, or not with our kernels.
[[nodiscard]] at::Device select_device(DeviceChoice choice, int number = 0);

// 0 = one for each processor that is allowed, shared with other processes of the job on this
// machine. Also switches off what would make results differ
// between equal runs. Throws UserError where the system does not grant so many threads.
void configure_threads(std::int64_t threads, bool deterministic, int processes_here = 1);

[[nodiscard]] at::ScalarType scalar_type(Precision precision);

}  // namespace transnormer::ops
