#include "ops/weights/few_rows.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "ops/kernels/step.h"
#include "ops/runtime/kernel_view.h"
#include "ops/runtime/launch.h"
#include "ops/runtime/short_loop.h"

namespace transnormer::ops {
namespace {

thread_local bool as_with_gradients = false;

// Bytes of weights of a part: fewer are not worth sharing out, and each part begins without what
// the one before has asked for from memory.
constexpr std::int64_t kLeastPart = 1 << 16;
constexpr std::int64_t kMostPart = 1 << 18;

// Beyond so many the library's product is as fast; in half precision, with its own instructions, it
// is so earlier, since ours spends its time on widening the weights.
std::int64_t most_rows(const at::Tensor& weight) {
  return weight.scalar_type() == at::kFloat ? 4 * kernels::kFewRows : kernels::kFewRows;
}

// Outputs of one part.
std::int64_t grain_of(const at::Tensor& weight) {
  const std::int64_t row = std::max<std::int64_t>(weight.size(1) * weight.element_size(), 1);
  const std::int64_t part =
      std::clamp(row * weight.size(0) / at::get_num_threads(), kLeastPart, kMostPart);
  constexpr std::int64_t together = kernels::kOutputsTogether;
  return std::max<std::int64_t>((part / row + together - 1) / together, 1) * together;
}

}  // namespace

ProductsAsWithGradients::ProductsAsWithGradients()
    : former_(std::exchange(as_with_gradients, true)) {}

ProductsAsWithGradients::~ProductsAsWithGradients() {
  as_with_gradients = former_;
}

bool few_rows_fit(const at::Tensor& x, const at::Tensor& weight) {
  return !as_with_gradients && x.is_cpu() && kernel_serves(x, &kernels::Kernels::step) &&
         x.scalar_type() == weight.scalar_type() && weight.is_contiguous() && x.numel() > 0 &&
         row_count(x) <= most_rows(weight);
}

at::Tensor few_rows_product(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  const at::Tensor rows = x.contiguous();
  const at::Tensor offset = bias.defined() ? bias.contiguous() : bias;
  std::vector<std::int64_t> sizes = x.sizes().vec();
  sizes.back() = weight.size(0);
  const at::Tensor y = at::empty(sizes, x.options());
  const kernels::FewRows shape{
      .first = 0, .last = 0, .rows = row_count(x), .in = weight.size(1), .out = weight.size(0)};
  const kernels::In biases =
      bias.defined() ? in(offset) : kernels::In{nullptr, kernels::Element::f32};
  short_parallel_for(shape.out, grain_of(weight), [&](std::int64_t first, std::int64_t last) {
    kernels::FewRows part = shape;
    part.first = first;
    part.last = last;
    // The weights of a part stay in the cache from one group of rows to the next.
    for (std::int64_t row = 0; row < shape.rows; row += part.rows) {
      part.rows = std::min(shape.rows - row, kernels::kFewRows);
      kernels_in_use(at::kCPU).step->product(part, in(rows, row * shape.in), in(weight), biases,
                                             out(y, row * shape.out));
    }
  });
  return y;
}

}  // namespace transnormer::ops
