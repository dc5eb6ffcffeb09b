#include "ops/weights/weight_gradient.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "ops/runtime/launch.h"
#include "ops/runtime/row_pitch.h"

namespace transnormer::ops {
namespace {

constexpr std::int64_t kTileBytes = 8LL << 20;  // of a half-precision product before it is added
constexpr std::int64_t kColumns = 64;           // that are worth a thread

void accumulate(const at::Tensor& sum, const at::Tensor& x) {
  if (!kernel_serves(x, &kernels::Kernels::accumulate) || !sum.is_contiguous()) {
    at::Tensor(sum).add_(x);
    return;
  }
  auto* to = sum.mutable_data_ptr<float>();
  launch(x, x.numel(), kGrain,
         [&](const kernels::Kernels& k, std::int64_t first, std::int64_t last) {
           k.accumulate(in(x, first), to + first, last - first);
         });
}

}  // namespace

at::Tensor gradient_sum(const Weight& weight) {
  return weight.gathers_gradient() ? weight.gradient() : at::zeros_like(weight.value());
}

void add_weight_gradient(const at::Tensor& sum, const at::Tensor& gradient,
                         const at::Tensor& input) {
  if (sum.scalar_type() == gradient.scalar_type()) {
    at::Tensor(sum).addmm_(gradient.t(), input);
    return;
  }
  if (sum.is_cuda()) {  // its library adds a half-precision product to single precision
    at::Tensor to = sum;
    at::addmm_out(to, sum, gradient.t(), input, at::kFloat);
    return;
  }
  const std::int64_t rows = sum.size(0);
  const std::int64_t row_bytes = sum.size(1) * static_cast<std::int64_t>(input.element_size());
  const std::int64_t tile = std::max<std::int64_t>(kTileBytes / row_bytes, 1);
  for (std::int64_t first = 0; first < rows; first += tile) {
    const std::int64_t last = std::min(first + tile, rows);
    accumulate(sum.slice(0, first, last), at::mm(gradient.slice(1, first, last).t(), input));
  }
}

void add_bias_gradient(const at::Tensor& sum, const at::Tensor& gradient) {
  if (!kernel_serves(gradient, &kernels::Kernels::add_column_sums)) {
    at::Tensor(sum).add_(at::sum(gradient, {0}, false, at::kFloat));
    return;
  }
  const at::Tensor rows = even_rows(gradient);
  const std::int64_t stride = row_stride_of(rows);
  auto* to = sum.mutable_data_ptr<float>();
  launch(rows, rows.size(1), kColumns,
         [&](const kernels::Kernels& k, std::int64_t first, std::int64_t last) {
           k.add_column_sums(in(rows), to, rows.size(0), stride, first, last);
         });
}

}  // namespace transnormer::ops
