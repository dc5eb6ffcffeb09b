#include "ops/kernels/functions.h"
#include "ops/kernels/philox.h"

namespace transnormer::ops::kernels::TRANSNORMER_ISA {

void dropout(const Mask& of_all, In x, Out y, std::int64_t elements, std::int64_t first,
             std::int64_t last) {
  by_type(x.type, [&](auto* t) {
    while (first < last) {
      const std::int64_t sample = first / elements;
      const std::int64_t end = (sample + 1) * elements < last ? (sample + 1) * elements : last;
      Mask m = of_all;
      m.sample += static_cast<std::uint64_t>(sample);
      m.first += static_cast<std::uint64_t>(first - sample * elements);
      const auto* from = as(x, t) + first;
      auto* to = as(y, t) + first;
      for_mask_tiles(m, end - first, [&](std::int64_t place, const float* mask, std::int64_t n) {
        for (std::int64_t i = 0; i < n; i += kLanes) {
          store(to + place + i, load(from + place + i, n - i) * load(mask + i, n - i), n - i);
        }
      });
      first = end;
    }
  });
}

void dropout_mask(const Mask& m, float* out, std::int64_t count) {
  for_mask_tiles(m, count, [&](std::int64_t place, const float* mask, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) {
      out[place + i] = mask[i];
    }
  });
}

}  // namespace transnormer::ops::kernels::TRANSNORMER_ISA
