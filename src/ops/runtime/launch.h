// Runs kernels where a tensor lies.
#pragma once

#include <cstdint>

#include "ops/runtime/kernel_view.h"
#include "ops/runtime/parallel.h"

namespace transnormer::ops {

// Calls body(kernels, first, last) for parts of [0, count) of at least `grain`, shared out over
// threads, or once for all on a GPU. `where` is a tensor that the kernels serve (kernel_serves);
// what a body computes must not depend on where the parts are cut.
template <typename Body>
void launch(const at::Tensor& where, std::int64_t count, std::int64_t grain, const Body& body) {
  const kernels::Kernels& chosen = kernels_in_use(where.device().type());
  if (where.is_cuda()) {
    if (count > 0) {
      body(chosen, std::int64_t{0}, count);
    }
    return;
  }
  parallel_for(count, grain,
               [&](std::int64_t first, std::int64_t last) { body(chosen, first, last); });
}

// The rows of a tensor, its last dimension being a row.
[[nodiscard]] inline std::int64_t row_count(const at::Tensor& x) {
  return x.size(-1) > 0 ? x.numel() / x.size(-1) : 0;
}

// The least number of rows of `width` elements that is worth a thread.
[[nodiscard]] inline std::int64_t row_grain(std::int64_t width) {
  return width < kGrain ? kGrain / (width > 0 ? width : 1) : 1;
}

}  // namespace transnormer::ops
