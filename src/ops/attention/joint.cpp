#include "ops/attention/joint.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "ops/runtime/carry.h"

namespace transnormer::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

std::int64_t numel_of_rows(at::IntArrayRef sizes, std::int64_t row_dims) {
  return c10::multiply_integers(sizes.slice(static_cast<std::size_t>(row_dims)));
}

// True where each of `parts` is, from dimension `row_dims` on, a dense part of the rows of one
// dense tensor, and they follow one another in it and fill it.
bool adjacent(const variable_list& parts, std::int64_t row_dims) {
  const at::Tensor& first = parts.front();
  const std::int64_t width = numel_of_rows(first.sizes(), row_dims);
  std::int64_t offset = first.storage_offset();
  for (const at::Tensor& part : parts) {
    if (!part.is_alias_of(first) || part.scalar_type() != first.scalar_type() ||
        part.sizes() != first.sizes() || part.storage_offset() != offset) {
      return false;
    }
    std::int64_t stride = 1;
    for (std::int64_t i = part.dim() - 1; i >= 0; --i) {
      if (i == row_dims - 1) {
        stride *= static_cast<std::int64_t>(parts.size());
      }
      if (part.size(i) != 1 && part.stride(i) != stride) {
        return false;
      }
      stride *= part.size(i);
    }
    offset += width;
  }
  return true;
}

struct Whole {
  std::vector<std::int64_t> sizes;
  at::TensorOptions options;
};

struct Split : torch::autograd::Function<Split> {
  static variable_list forward(AutogradContext* context, const at::Tensor& joint,
                               std::int64_t parts) {
    carry(context, Whole{joint.sizes().vec(), joint.options()});
    context->set_materialize_grads(false);
    return joint.chunk(parts, -1);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto& [sizes, options] = carried<Whole>(context);
    std::vector<std::int64_t> part_sizes = sizes;
    part_sizes.back() /= static_cast<std::int64_t>(gradients.size());
    for (at::Tensor& gradient : gradients) {
      if (!gradient.defined()) {
        gradient = at::zeros(part_sizes, options);
      }
    }
    if (!adjacent(gradients, static_cast<std::int64_t>(sizes.size()) - 1)) {
      return {at::cat(gradients, -1), {}};
    }
    std::vector<std::int64_t> strides(sizes.size(), 1);
    for (std::size_t i = sizes.size() - 1; i > 0; --i) {
      strides[i - 1] = strides[i] * sizes[i];
    }
    return {gradients[0].as_strided(sizes, strides), {}};
  }
};

}  // namespace

std::vector<at::Tensor> split(const at::Tensor& joint, std::int64_t parts) {
  TORCH_CHECK(joint.dim() > 0 && parts > 0 && joint.size(-1) % parts == 0,
              "split: a last dimension ", "of sizes ", joint.sizes(), " has no ", parts,
              " equal parts");
  const at::Tensor dense = joint.contiguous();
  return at::GradMode::is_enabled() ? Split::apply(dense, parts) : dense.chunk(parts, -1);
}

std::vector<at::Tensor> empty_like_parts(const std::vector<at::Tensor>& parts) {
  const at::Tensor& first = parts.front();
  std::vector<at::Tensor> made;
  if (!adjacent(parts, 2)) {
    for (const at::Tensor& part : parts) {
      made.push_back(at::empty(part.sizes(), part.options(), at::MemoryFormat::Contiguous));
    }
    return made;
  }
  const std::int64_t heads = first.size(2);
  const at::Tensor joint =
      at::empty({first.size(0), first.size(1), static_cast<std::int64_t>(parts.size()) * heads,
                 first.size(3)},
                first.options(), at::MemoryFormat::Contiguous);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    made.push_back(joint.narrow(2, static_cast<std::int64_t>(i) * heads, heads));
  }
  return made;
}

}  // namespace transnormer::ops
