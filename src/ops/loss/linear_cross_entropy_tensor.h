// The loss of a slice of logits in tensor operations: for devices without a kernel of ours, and the
// second implementation that tests compare with.
#pragma once

#include <ATen/core/Tensor.h>

namespace transnormer::ops {

// logits: [tokens, vocab_size]; targets: [tokens], int64, -1 = ignored; losses: [tokens], fp32, is
// filled with -log p(target), 0 where ignored. Where there is a scale (fp32, a scalar),
// scale * d(loss)/d(logits) takes the place of the logits. Computed in fp32.
void loss_of_slice_by_tensors(at::Tensor& logits, const at::Tensor& targets, at::Tensor& losses,
                              const at::Tensor& scale);

}  // namespace transnormer::ops
