#include "ops/cuda/nccl.h"

#ifdef USE_C10D_NCCL
#include <c10/cuda/CUDAFunctions.h>
#include <c10/util/Logging.h>

#include <array>
#include <cstdlib>
#include <exception>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#include <utility>

#include "dist/engine.h"
#endif

namespace transnormer::ops::cuda {

#ifdef USE_C10D_NCCL

namespace {

// c10d finds faults in threads of its own, and would abort the process with a report of many lines.
// Here it only keeps them: dist::World asks for them, and ends all processes by one line. What the
// user has set stays.
void let_world_speak() {
  constexpr std::array kSettings{
      std::pair{"TORCH_NCCL_ASYNC_ERROR_HANDLING", "0"},
      std::pair{"TORCH_NCCL_ENABLE_MONITORING", "0"},
      std::pair{"TORCH_NCCL_DUMP_ON_TIMEOUT", "0"},
      std::pair{"TORCH_NCCL_TRACE_BUFFER_SIZE", "0"},
      // The thread that computes meets a fault of the GPU too.
      std::pair{"TORCH_NCCL_RETHROW_CUDA_ERRORS", "0"},
      std::pair{"TORCH_NCCL_SHOW_EAGER_INIT_P2P_SERIALIZATION_WARNING", "0"},
      std::pair{"TORCH_CPP_LOG_LEVEL", "FATAL"},
  };
  for (const auto& [name, value] : kSettings) {
    setenv(name, value, /*overwrite=*/0);
  }
  c10::initLogging();
}

// Others have had what this process sent: all meet on the host before they end. Where they do not,
// nobody waits for them here.
void leave(dist::Engine* engine) {
  try {
    engine->backend->abort();
  } catch (const std::exception&) {  // the process ends in any case
  }
  delete engine;
}

std::shared_ptr<dist::Engine> make_engine(const dist::EngineRequest& request) {
  let_world_speak();
  // In which the first one must have said where NCCL's processes meet.
  request.store->setTimeout(request.timeout);
  auto options = c10d::ProcessGroupNCCL::Options::create(/*is_high_priority_stream=*/true);
  options->timeout = request.timeout;
  auto backend = c10::make_intrusive<c10d::ProcessGroupNCCL>(request.store, request.rank,
                                                             request.size, options);
  std::shared_ptr<dist::Engine> engine(new dist::Engine{.backend = backend}, leave);
  // Faults show now, and messages between two need no communicators of their own.
  const at::Device device(at::kCUDA, c10::cuda::current_device());
  backend->setBoundDeviceId(device);
  backend->eagerConnectSingleDevice(device);
  return engine;
}

}  // namespace

decltype(CudaLibrary::nccl_engine) nccl_engine() {
  return make_engine;
}

#else

decltype(CudaLibrary::nccl_engine) nccl_engine() {
  return nullptr;
}

#endif

}  // namespace transnormer::ops::cuda
