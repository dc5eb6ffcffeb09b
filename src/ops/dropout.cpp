#include "ops/dropout.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "ops/runtime/carry.h"
#include "ops/runtime/launch.h"
#include "ops/runtime/philox_tensor.h"

namespace transnormer::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Calls body(sample, first, last) for parts of the elements of all samples, shared out.
template <typename Body>
void for_parts(std::int64_t samples, std::int64_t elements, const Body& body) {
  const std::int64_t in_sample = (elements + kGrain - 1) / kGrain;
  parallel_for(samples * in_sample, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t first = i % in_sample * kGrain;
      body(i / in_sample, first, std::min(first + kGrain, elements));
    }
  });
}

at::Tensor apply_mask(const at::Tensor& x, double p, const DropoutKey& key) {
  const std::int64_t samples = x.size(0);
  const std::int64_t elements = samples > 0 ? x.numel() / samples : 0;
  if (!kernel_serves(x, &kernels::Kernels::dropout)) {
    const at::Tensor mask =
        dropout_mask_of(philox_bits(samples, elements, key, x.device()), p).view(x.sizes());
    return (x.to(at::kFloat) * mask).to(x.scalar_type());
  }
  const at::Tensor dense = x.contiguous();
  const at::Tensor y = empty_dense(x);
  const kernels::Mask mask = kernel_mask(key, p, 0, 0);
  launch(x, x.numel(), kGrain,
         [&](const kernels::Kernels& k, std::int64_t first, std::int64_t last) {
           k.dropout(mask, in(dense), out(y), elements, first, last);
         });
  return y;
}

struct Dropout : torch::autograd::Function<Dropout> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const Drop& drop) {
    carry(context, drop);
    return apply_mask(x, drop.p, drop.key);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto& drop = carried<Drop>(context);
    return {apply_mask(gradients[0], drop.p, drop.key), {}};
  }
};

}  // namespace

at::Tensor dropout(const at::Tensor& x, double p, const DropoutKey& key) {
  return p > 0 ? Dropout::apply(x, Drop{p, key}) : x;
}

at::Tensor dropout_mask(std::int64_t samples, std::int64_t elements, double p,
                        const DropoutKey& key, const at::Device& device) {
  if (!kernel_serves(device, at::kFloat, &kernels::Kernels::dropout_mask)) {
    return dropout_mask_of(philox_bits(samples, elements, key, device), p);
  }
  const at::Tensor mask = at::empty({samples, elements}, at::device(device).dtype(at::kFloat));
  auto* data = mask.mutable_data_ptr<float>();
  const auto make = [&](std::int64_t sample, std::int64_t first, std::int64_t last) {
    kernels_in_use(device.type())
        .dropout_mask(kernel_mask(key, p, sample, first), data + sample * elements + first,
                      last - first);
  };
  if (device.is_cpu()) {
    for_parts(samples, elements, make);
    return mask;
  }
  for (std::int64_t sample = 0; sample < samples; ++sample) {
    make(sample, 0, elements);
  }
  return mask;
}

}  // namespace transnormer::ops
