#include "model/attention/unit_values.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace transnormer {

at::Tensor weights_of_values(std::int64_t batch, std::int64_t time, std::int64_t heads,
                             std::int64_t width, at::Device device,
                             const std::function<at::Tensor(const at::Tensor& values)>& attend) {
  const auto options = at::device(device).dtype(at::kFloat);
  at::Tensor all = at::empty({batch, heads, time, time}, options);
  for (std::int64_t first = 0; first < time; first += width) {
    const std::int64_t count = std::min(width, time - first);
    at::Tensor unit = at::zeros({time, width}, options);
    unit.narrow(0, first, count).diagonal().fill_(1);
    const at::Tensor values =
        unit.view({1, time, 1, width}).expand({batch, time, heads, width}).contiguous();
    all.narrow(3, first, count).copy_(attend(values).narrow(3, 0, count).transpose(1, 2));
  }
  return all;
}

}  // namespace transnormer
