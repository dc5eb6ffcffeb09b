#include "ops/attention/sequence_sums.h"

#include <ATen/ATen.h>

namespace transnormer::ops {

at::Tensor sums_of_ranks_before(const dist::Group& group, const at::Tensor& own) {
  const at::Tensor all = group.gather(own);
  at::Tensor sum = at::zeros_like(own);
  for (int rank = 0; rank < group.rank(); ++rank) {
    sum.add_(all[rank]);
  }
  return sum;
}

at::Tensor sums_of_ranks_behind(const dist::Group& group, const at::Tensor& own) {
  const at::Tensor all = group.gather(own);
  at::Tensor sum = at::zeros_like(own);
  for (int rank = group.size() - 1; rank > group.rank(); --rank) {
    sum.add_(all[rank]);
  }
  return sum;
}

}  // namespace transnormer::ops
