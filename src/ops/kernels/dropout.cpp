#include "ops/kernels/functions.h"
#include "ops/kernels/philox.h"

namespace transnormer::ops::kernels::TRANSNORMER_ISA {

void dropout(const Mask& m, In x, Out y, std::int64_t count) {
  by_type(x.bf16, [&](auto* t) {
    const auto* from = as(x, t);
    auto* to = as(y, t);
    for_mask_tiles(m, count, [&](std::int64_t place, const float* mask, std::int64_t n) {
      for (std::int64_t i = 0; i < n; i += kLanes) {
        store(to + place + i, load(from + place + i, n - i) * load(mask + i, n - i), n - i);
      }
    });
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
