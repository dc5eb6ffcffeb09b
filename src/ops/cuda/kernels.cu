#include "ops/cuda/kernels.h"
#include "ops/cuda/launcher.cuh"
#include "ops/cuda/table.h"

namespace transnormer::ops::cuda {

const kernels::Kernels& kernels_of_device() {
  static const kernels::Kernels table = table_of<DeviceLauncher>("cuda");
  return table;
}

bool linear_attention_fits(const kernels::LinearAttention& shape) {
  const std::int64_t floats = LinearAttentions<DeviceLauncher>::most_shared_floats(shape);
  return static_cast<std::size_t>(floats) * sizeof(float) <= most_shared_bytes();
}

bool block_attention_fits(const kernels::BlockAttention& shape) {
  const std::int64_t floats = BlockGradients::shared_floats(shape);
  return static_cast<std::size_t>(floats) * sizeof(float) <= most_shared_bytes();
}

}  // namespace transnormer::ops::cuda
