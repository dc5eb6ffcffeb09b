#include "ops/attention/encoding.h"

#include "ops/activation.h"
#include "ops/attention/lrpe.h"

namespace transnormer::ops {

at::Tensor encode(const at::Tensor& x, const Encoding& encoding) {
  const at::Tensor mapped = encoding.feature ? feature_map(x, *encoding.feature) : x;
  return encoding.theta.defined()
             ? lrpe(mapped, encoding.theta, encoding.reflect, encoding.first_position,
                    encoding.period, encoding.positions)
             : mapped;
}

}  // namespace transnormer::ops
