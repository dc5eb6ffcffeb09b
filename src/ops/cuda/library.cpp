#include "ops/cuda/graph.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/nccl.h"
#include "ops/runtime/cuda_library.h"

const transnormer::ops::CudaLibrary* transnormer_cuda_library() {
  namespace cuda = transnormer::ops::cuda;
  static const transnormer::ops::CudaLibrary library{
      .kernels = &cuda::kernels_of_device(),
      .linear_attention_fits = cuda::linear_attention_fits,
      .block_attention_fits = cuda::block_attention_fits,
      .capture = cuda::capture,
      .replay = cuda::replay,
      .discard = cuda::discard,
      .nccl_engine = cuda::nccl_engine()};
  return &library;
}
