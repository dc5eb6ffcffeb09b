#include "ops/runtime/nccl.h"

#include <string>

#include "ops/runtime/cuda_library.h"
#include "util/error.h"

namespace transnormer::ops {
namespace {

[[noreturn]] void refuse(const std::string& reason) {
  throw UserError("device: several processes on GPUs talk by NCCL, and " + reason +
                  "; or start one process, or use --device cpu");
}

std::shared_ptr<dist::Engine> make(const dist::EngineRequest& request) {
  if (cuda_library() == nullptr) {
    refuse(
        "libtransnormer_cuda.so, which brings it, cannot be used; install a CUDA compiler (nvcc) "
        "and build again");
  }
  if (cuda_library()->nccl_engine == nullptr) {
    refuse(
        "this program was built without its header; install nvidia-nccl-cu13 into .venv (or "
        "libnccl-dev) and build again");
  }
  return cuda_library()->nccl_engine(request);
}

}  // namespace

dist::EngineMaker nccl_engines(at::Device device) {
  return device.is_cpu() ? dist::EngineMaker() : make;
}

}  // namespace transnormer::ops
