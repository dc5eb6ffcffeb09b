#include "ops/trust/cuda_driver.h"

#include <dlfcn.h>

#include <array>
#include <fstream>

namespace transnormer::ops {
namespace {

// Of the driver's C interface, which is stable; its header comes with the toolkit only.
constexpr int kSuccess = 0;
constexpr int kCapabilityMajor = 75;
constexpr int kCapabilityMinor = 76;

template <typename... Arguments>
using Call = int (*)(Arguments...);

template <typename... Arguments>
bool call(void* driver, const char* name, Arguments... arguments) {
  const auto function = reinterpret_cast<Call<Arguments...>>(dlsym(driver, name));
  return function != nullptr && function(arguments...) == kSuccess;
}

std::string kernel_module() {
  std::ifstream file("/proc/driver/nvidia/version");
  std::string line;
  return std::getline(file, line) ? ", " + line : "";
}

}  // namespace

std::optional<GpuIdentity> identify_gpu() {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  std::array<char, 256> name{};
  int device = 0;
  int major = 0;
  int minor = 0;
  int version = 0;
  const bool told =
      driver != nullptr && call(driver, "cuInit", 0U) && call(driver, "cuDeviceGet", &device, 0) &&
      call(driver, "cuDeviceGetName", name.data(), static_cast<int>(name.size() - 1), device) &&
      call(driver, "cuDeviceGetAttribute", &major, kCapabilityMajor, device) &&
      call(driver, "cuDeviceGetAttribute", &minor, kCapabilityMinor, device) &&
      call(driver, "cuDriverGetVersion", &version);
  if (!told) {
    return std::nullopt;
  }
  const auto dotted = [](int a, int b) { return std::to_string(a) + '.' + std::to_string(b); };
  return GpuIdentity{std::string(name.data()) + ", " + dotted(major, minor),
                     dotted(version / 1000, version % 1000 / 10) + kernel_module()};
}

}  // namespace transnormer::ops
