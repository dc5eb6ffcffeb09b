// The GPU's side of the program: a library of its own, made from src/ops/cuda where a CUDA
// compiler is found, and loaded only where a GPU is used. Without it a GPU works by LibTorch's
// operations.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "ops/kernels/kernels.h"

namespace transnormer::dist {
struct Engine;
struct EngineRequest;
}  // namespace transnormer::dist

namespace transnormer::ops {

// What the library gives. All work goes to LibTorch's current stream of the current device, and all
// pointers in the arguments are to the memory of that device.
struct CudaLibrary {
  const kernels::Kernels* kernels;

  // Whether the attentions' kernels find room on the current device; they use no scratch.
  bool (*linear_attention_fits)(const kernels::LinearAttention&);
  bool (*block_attention_fits)(const kernels::BlockAttention&);

  // Captures in a graph what body(argument) sends to the GPU, on a stream of its own and without
  // running it. What it allocates stays with the graph. Throws what the body throws.
  void* (*capture)(void (*body)(void*), void* argument);
  void (*replay)(void* graph);
  void (*discard)(void* graph);

  // A group's engine for tensors of the current device, by NCCL; see dist::EngineMaker. Null where
  // NCCL's header was not there when the library was built.
  std::shared_ptr<dist::Engine> (*nccl_engine)(const dist::EngineRequest&);
};

// Loads the library that lies beside the executable, beside its folder (as for the tests), or where
// it is installed.
// LibTorch's CUDA library must be loaded. Returns why it could not be, or nothing.
[[nodiscard]] std::string load_cuda_library();

// Where the loaded library lies; empty where none is.
[[nodiscard]] const std::filesystem::path& cuda_library_file();

// Null where none is loaded.
[[nodiscard]] const CudaLibrary* cuda_library();

}  // namespace transnormer::ops

// The library's one exported function.
extern "C" const transnormer::ops::CudaLibrary* transnormer_cuda_library();
