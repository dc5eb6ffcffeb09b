#include "ops/device.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <thread>

#include "ops/cuda_library.h"
#include "ops/kernel_view.h"
#include "util/error.h"

namespace transnormer::ops {
namespace {

bool driver_present() {
  return dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL) != nullptr;
}

// LibTorch finds its CUDA side through objects that register themselves when this library is
// loaded, and looks for them once only.
bool load_torch_cuda() {
  return dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL) != nullptr;
}

}  // namespace

at::Device select_device(DeviceChoice choice) {
  if (choice == DeviceChoice::cpu) {
    return at::kCPU;
  }
  const bool wanted = choice == DeviceChoice::cuda;
  if (!driver_present()) {
    if (wanted) {
      throw UserError(
          "device: cuda was asked for, but no NVIDIA driver (libcuda.so.1) was found; install it "
          "or use --device cpu");
    }
    return at::kCPU;
  }
  if (!load_torch_cuda()) {
    if (wanted) {
      throw UserError(std::string("device: cuda was asked for, but LibTorch's CUDA library could "
                                  "not be loaded (") +
                      dlerror() + "); use a LibTorch with CUDA or --device cpu");
    }
    return at::kCPU;
  }
  if (!at::globalContext().hasCUDA()) {
    if (wanted) {
      throw UserError(
          "device: cuda was asked for, but the NVIDIA driver shows no GPU; check nvidia-smi and "
          "CUDA_VISIBLE_DEVICES, or use --device cpu");
    }
    return at::kCPU;
  }
  // The allocator answers questions about memory only once it is set up.
  at::globalContext().lazyInitDevice(at::kCUDA);
  (void)load_cuda_library();  // without it, LibTorch's operations serve
  return at::Device(at::kCUDA, 0);
}

void configure_threads(std::int64_t threads, bool deterministic) {
  (void)plain_operators();  // a wrong value is told now and not in the middle of the work
  const auto cores = static_cast<std::int64_t>(std::thread::hardware_concurrency());
  at::set_num_threads(static_cast<int>(threads > 0 ? threads : std::max<std::int64_t>(cores, 1)));

  at::Context& context = at::globalContext();
  // Products of single precision stay in single precision: no TF32, no bf16 under the hood.
  context.setFloat32MatmulPrecision("highest");
  context.setBenchmarkCuDNN(false);
  if (deterministic) {
    // Read by cuBLAS when it is first used.
    setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", 0);
  }
  context.setDeterministicAlgorithms(deterministic, false);
  context.setDeterministicCuDNN(deterministic);
  // The mode would also fill every new tensor with NaN, a debugging aid that costs a pass over it.
  context.setDeterministicFillUninitializedMemory(false);
}

at::ScalarType scalar_type(Precision precision) {
  switch (precision) {
    case Precision::bf16:
      return at::kBFloat16;
    case Precision::fp16:
      return at::kHalf;
    case Precision::fp32:
      break;
  }
  return at::kFloat;
}

}  // namespace transnormer::ops
