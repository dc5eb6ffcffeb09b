// Comparisons of kernels with LibTorch's operations for the same, on small random inputs: what
// tells whether a device runs our kernels as they are meant.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

#include "ops/kernels/kernels.h"

namespace transnormer::ops {

struct KernelTrial {
  std::string kernel;  // its name in the table
  // What an operator gives that uses the kernel where it may, of operands rounded to `rounded` and
  // held in `type`.
  std::function<std::vector<at::Tensor>(const at::Device&, at::ScalarType rounded,
                                        at::ScalarType type)>
      run;
};

// One for each kernel.
[[nodiscard]] const std::vector<KernelTrial>& kernel_trials();

// How the results with the kernel of `table`, in every type that kernels serve there, differ from
// those in fp32 without any; empty where they agree. Throws what the kernel makes the operators
// throw. No other work may go on meanwhile: the kernels in use on the device are others.
[[nodiscard]] std::string disagreement(const KernelTrial& trial, const kernels::Kernels& table,
                                       const at::Device& device);

}  // namespace transnormer::ops
