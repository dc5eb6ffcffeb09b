#include "ops/runtime/device.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>

#include <cstdlib>
#include <utility>

#include "log/console.h"
#include "ops/runtime/cuda_library.h"
#include "ops/runtime/kernel_table.h"
#include "ops/runtime/operator_choices.h"
#include "ops/runtime/parallel.h"
#include "ops/trust/trust.h"
#include "util/error.h"
#include "util/processors.h"

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

// Commands may select a device more than once.
void warn_once(const std::string& message) {
  static bool warned = false;
  if (!std::exchange(warned, true)) {
    log::warn(message);
  }
}

// The kernels are tried while this process does not use the GPU yet.
void prepare_kernels() {
  if (cuda_library() != nullptr) {
    return;
  }
  if (const std::string reason = load_cuda_library(); !reason.empty()) {
    warn_once("the kernels for GPUs cannot be used, LibTorch's slower operations serve: " + reason);
    return;
  }
  use_kernels(at::kCUDA, trusted_gpu_kernels(*cuda_library()->kernels, cuda_library_file()));
}

}  // namespace

at::Device select_device(DeviceChoice choice, int number) {
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
    const std::string reason =
        std::string("LibTorch's CUDA library could not be loaded (") + dlerror() + ")";
    if (wanted) {
      throw UserError("device: cuda was asked for, but " + reason +
                      "; use a LibTorch with CUDA or --device cpu");
    }
    warn_once("device: there is an NVIDIA driver, but " + reason + "; the processor is used");
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
  if (const int gpus = static_cast<int>(at::detail::getCUDAHooks().deviceCount()); number >= gpus) {
    throw UserError("device: this machine shows " + std::to_string(gpus) +
                    (gpus == 1 ? " GPU" : " GPUs") + " to a process of local rank " +
                    std::to_string(number) +
                    ", which needs one of its own; start fewer processes here, or use --device "
                    "cpu");
  }
  prepare_kernels();
  // The allocator answers questions about memory only once it is set up.
  at::globalContext().lazyInitDevice(at::kCUDA);
  const at::Device device(at::kCUDA, static_cast<at::DeviceIndex>(number));
  c10::impl::VirtualGuardImpl(at::kCUDA).setDevice(device);
  return device;
}

void configure_threads(std::int64_t threads, bool deterministic, int processes_here) {
  (void)operator_choices();  // a wrong value is told now and not in the middle of the work
  const int count = threads > 0 ? static_cast<int>(threads) : processors_of_one(processes_here);
  require_threads(count);
  at::set_num_threads(count);
  // The pool starts now, where its threads are known to be granted.
  parallel_for(count, 1, [](std::int64_t, std::int64_t) {});

  at::Context& context = at::globalContext();
  // Products of single precision stay in single precision: no TF32, no bf16 under the hood.
  context.setFloat32MatmulPrecision("highest");
  context.setBenchmarkCuDNN(false);
  // Products in half precision are summed in single precision, also where a GPU cuts one in parts
  // and adds those up.
  context.setAllowBF16ReductionCuBLAS(false);
  context.setAllowFP16ReductionCuBLAS(false);
  context.setAllowFP16AccumulationCuBLAS(false);
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
