#include "ops/runtime/kernel_table.h"

namespace transnormer::ops {
namespace {

kernels::Kernels& table_of(c10::DeviceType device) {
  static kernels::Kernels on_cpu = kernels::kernels();
  static kernels::Kernels on_gpu{};
  return device == c10::DeviceType::CPU ? on_cpu : on_gpu;
}

}  // namespace

const kernels::Kernels& kernels_in_use(c10::DeviceType device) {
  return table_of(device);
}

void use_kernels(c10::DeviceType device, const kernels::Kernels& table) {
  table_of(device) = table;
}

KernelsGuard::KernelsGuard(c10::DeviceType device, const kernels::Kernels& table)
    : device_(device), former_(kernels_in_use(device)) {
  use_kernels(device, table);
}

KernelsGuard::~KernelsGuard() {
  use_kernels(device_, former_);
}

}  // namespace transnormer::ops
