#include "ops/runtime/device_memory.h"

#include <ATen/DeviceAccelerator.h>
#include <c10/core/CachingDeviceAllocator.h>

#include "util/memory.h"

namespace transnormer::ops {
namespace {

using c10::CachingAllocator::StatType;

// Above this LibTorch cannot even describe the tensors.
constexpr double kDescribableBytes = 0x1p62;

c10::DeviceIndex index_of(at::Device device) {
  return device.has_index() ? device.index() : c10::DeviceIndex{0};
}

c10::CachingDeviceAllocator::DeviceStats stats_of(at::Device device) {
  return c10::getDeviceAllocator(device.type())->getDeviceStats(index_of(device));
}

}  // namespace

double device_memory_bytes(at::Device device) {
  if (device.is_meta()) {
    return kDescribableBytes;
  }
  if (device.is_cpu()) {
    return static_cast<double>(machine_memory_bytes());
  }
  return static_cast<double>(at::accelerator::getMemoryInfo(index_of(device)).second);
}

std::int64_t used_memory_bytes(at::Device device) {
  if (device.is_cpu()) {
    return resident_memory_bytes();
  }
  return stats_of(device).reserved_bytes[static_cast<std::size_t>(StatType::AGGREGATE)].current;
}

PeakMemory::PeakMemory(at::Device device) : device_(device) {
  if (device_.is_cpu()) {
    release_freed_memory();
    reset_peak_memory();
  } else {
    c10::getDeviceAllocator(device_.type())->emptyCache();
    c10::getDeviceAllocator(device_.type())->resetPeakStats(index_of(device_));
  }
}

std::int64_t PeakMemory::bytes() const {
  if (device_.is_cpu()) {
    return peak_memory_bytes();
  }
  return stats_of(device_).allocated_bytes[static_cast<std::size_t>(StatType::AGGREGATE)].peak;
}

}  // namespace transnormer::ops
