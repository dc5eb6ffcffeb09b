// What the NVIDIA driver tells without LibTorch and without a process's share of the GPU.
#pragma once

#include <optional>
#include <string>

namespace transnormer::ops {

struct GpuIdentity {
  std::string device;  // "NVIDIA A100-SXM4-80GB, 8.0"
  std::string driver;  // "13.0", and the kernel module's line where the system shows it
};

// Of the first GPU that this process may use; nothing where the driver does not tell.
[[nodiscard]] std::optional<GpuIdentity> identify_gpu();

}  // namespace transnormer::ops
