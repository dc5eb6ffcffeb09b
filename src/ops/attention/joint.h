// Queries, keys and values as the parts of one product's result, and their gradients as the parts
// of one tensor: neither way is anything copied.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace transnormer::ops {

// joint: dense, [.., parts * width] -> views [.., width] of its adjacent parts. The gradient is one
// dense tensor like `joint`: where the parts' gradients are themselves the adjacent parts of one
// (as the attentions make them; a view of [.., width] as [.., heads, width / heads] in between
// changes nothing), that one without a copy. A part without a gradient counts as zero.
[[nodiscard]] std::vector<at::Tensor> split(const at::Tensor& joint, std::int64_t parts);

// A new, unfilled tensor of the sizes and type of each of `parts`, which are [batch, time, heads,
// dim]. Where those are adjacent parts of the rows of one storage, so are the new ones, in a tensor
// of their own; else each is dense.
[[nodiscard]] std::vector<at::Tensor> empty_like_parts(const std::vector<at::Tensor>& parts);

}  // namespace transnormer::ops
