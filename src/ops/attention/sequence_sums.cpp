#include "ops/attention/sequence_sums.h"

#include <ATen/ATen.h>

namespace transnormer::ops {
namespace {

// Takes the sum past the next rank on its way.
void pass_on(at::Tensor& sum, const at::Tensor& of_rank, const at::Tensor& fading) {
  if (fading.defined()) {
    sum.mul_(fading);
  }
  sum.add_(of_rank);
}

}  // namespace

at::Tensor sums_of_ranks_before(const dist::Group& group, const at::Tensor& own,
                                const at::Tensor& fading) {
  const at::Tensor all = group.gather(own);
  at::Tensor sum = at::zeros_like(own);
  for (int rank = 0; rank < group.rank(); ++rank) {
    pass_on(sum, all[rank], fading);
  }
  return sum;
}

at::Tensor sums_of_ranks_behind(const dist::Group& group, const at::Tensor& own,
                                const at::Tensor& fading) {
  const at::Tensor all = group.gather(own);
  at::Tensor sum = at::zeros_like(own);
  for (int rank = group.size() - 1; rank > group.rank(); --rank) {
    pass_on(sum, all[rank], fading);
  }
  return sum;
}

}  // namespace transnormer::ops
