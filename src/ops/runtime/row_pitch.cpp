#include "ops/runtime/row_pitch.h"

#include <ATen/ATen.h>

#include <optional>
#include <vector>

#include "ops/runtime/operator_choices.h"

namespace transnormer::ops {
namespace {

bool pads(const at::TensorOptions& options) {
  return is_used(operator_choices().row_pitch,
                 options.device().is_cuda() && options.dtype().itemsize() < sizeof(float));
}

// Nothing where the rows are not dense in themselves and equal strides apart.
std::optional<std::int64_t> even_stride(const at::Tensor& x) {
  const std::int64_t width = x.size(-1);
  if (x.is_contiguous()) {
    return width;
  }
  if (x.dim() < 2 || x.stride(-1) != 1) {
    return std::nullopt;
  }
  std::optional<std::int64_t> stride;
  std::int64_t expected = 0;  // of the next dimension outwards
  for (std::int64_t d = x.dim() - 2; d >= 0; --d) {
    if (x.size(d) == 1) {
      continue;
    }
    if (!stride) {
      stride = x.stride(d);
      expected = *stride;
    }
    if (x.stride(d) != expected) {
      return std::nullopt;
    }
    expected *= x.size(d);
  }
  if (stride && *stride < width) {
    return std::nullopt;
  }
  return stride.value_or(width);
}

}  // namespace

std::int64_t row_pitch(std::int64_t width, const at::TensorOptions& options) {
  if (!pads(options)) {
    return width;
  }
  const auto step = kRowBytes / static_cast<std::int64_t>(options.dtype().itemsize());
  return (width + step - 1) / step * step;
}

at::Tensor empty_rows(at::IntArrayRef sizes, const at::TensorOptions& options) {
  const std::int64_t width = sizes.back();
  std::vector<std::int64_t> padded = sizes.vec();
  padded.back() = row_pitch(width, options);
  const at::Tensor whole = at::empty(padded, options);
  return padded.back() == width ? whole : whole.narrow(-1, 0, width);
}

at::Tensor even_rows(const at::Tensor& x) {
  return even_stride(x) ? x : x.contiguous();
}

std::int64_t row_stride_of(const at::Tensor& x) {
  const std::optional<std::int64_t> stride = even_stride(x);
  TORCH_CHECK(stride.has_value(), "row_stride_of: rows that are not equal strides apart");
  return *stride;
}

}  // namespace transnormer::ops
