// The kernels in use on each device. What is left out of a table, a null pointer, is done by
// LibTorch's operations.
#pragma once

#include <c10/core/Device.h>

#include "ops/kernels/kernels.h"

namespace transnormer::ops {

// On a CPU at first the best that it runs; on a GPU at first none.
[[nodiscard]] const kernels::Kernels& kernels_in_use(c10::DeviceType device);

// `table` is copied. No operator may run meanwhile.
void use_kernels(c10::DeviceType device, const kernels::Kernels& table);

// Other kernels while it lives, on all threads. For tests and trials.
class KernelsGuard {
 public:
  KernelsGuard(c10::DeviceType device, const kernels::Kernels& table);
  ~KernelsGuard();
  KernelsGuard(const KernelsGuard&) = delete;
  KernelsGuard& operator=(const KernelsGuard&) = delete;

 private:
  c10::DeviceType device_;
  kernels::Kernels former_;
};

}  // namespace transnormer::ops
