#include "model/position.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

namespace transnormer {
namespace {

constexpr std::int64_t kFirstNumber = 2;
// Made at once, so that decoding does not make a row for every token.
constexpr std::int64_t kFewestRows = 512;

at::Tensor make_rows(std::int64_t first, std::int64_t count, std::int64_t dim) {
  const std::int64_t half = dim / 2;
  const double step = std::log(10000.0) / static_cast<double>(std::max<std::int64_t>(half - 1, 1));
  const at::Tensor rows = at::zeros({count, dim}, at::kFloat);
  float* row = rows.data_ptr<float>();
  for (std::int64_t t = 0; t < count; ++t, row += dim) {
    const auto number = static_cast<double>(first + t + kFirstNumber);
    for (std::int64_t i = 0; i < half; ++i) {
      const double angle = number * std::exp(-step * static_cast<double>(i));
      row[i] = static_cast<float>(std::sin(angle));
      row[half + i] = static_cast<float>(std::cos(angle));
    }
  }
  return rows;
}

}  // namespace

at::Tensor SinusoidalPositions::rows(std::int64_t first, std::int64_t count, at::Device device) {
  const bool held = rows_.defined() && rows_.device() == device && first >= first_ &&
                    first + count <= first_ + rows_.size(0);
  if (!held) {
    rows_ = make_rows(first, std::max(count, kFewestRows), dim_).to(device);
    first_ = first;
  }
  return rows_.narrow(0, first - first_, count);
}

at::Tensor SinusoidalPositions::rows(const at::Tensor& positions) {
  const auto [least, most] = at::aminmax(positions);
  const auto first = least.item<std::int64_t>();
  const at::Tensor table = rows(first, most.item<std::int64_t>() - first + 1, positions.device());
  return table.index_select(0, positions.flatten() - first)
      .view({positions.size(0), positions.size(1), dim_});
}

}  // namespace transnormer
