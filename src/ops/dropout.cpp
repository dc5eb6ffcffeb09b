#include "ops/dropout.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "ops/philox_tensor.h"

namespace transnormer::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor apply_mask(const at::Tensor& x, double p, const DropoutKey& key) {
  const std::int64_t samples = x.size(0);
  const at::Tensor mask =
      dropout_mask(samples, samples > 0 ? x.numel() / samples : 0, p, key, x.device());
  return (x.to(at::kFloat) * mask.view(x.sizes())).to(x.scalar_type());
}

struct Dropout : torch::autograd::Function<Dropout> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, double p,
                            const DropoutKey& key) {
    context->saved_data["p"] = p;
    context->saved_data["key"] = std::vector<std::int64_t>{
        static_cast<std::int64_t>(key.seed), key.update, key.layer, key.site, key.first_sample};
    return apply_mask(x, p, key);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const std::vector<std::int64_t> k = context->saved_data["key"].toIntVector();
    const DropoutKey key{static_cast<std::uint64_t>(k[0]), k[1], k[2], k[3], k[4]};
    return {apply_mask(gradients[0], context->saved_data["p"].toDouble(), key), {}, {}};
  }
};

}  // namespace

at::Tensor dropout(const at::Tensor& x, double p, const DropoutKey& key) {
  return p > 0 ? Dropout::apply(x, p, key) : x;
}

at::Tensor dropout_mask(std::int64_t samples, std::int64_t elements, double p,
                        const DropoutKey& key, const at::Device& device) {
  return dropout_mask_of(philox_bits(samples, elements, key, device), p);
}

}  // namespace transnormer::ops
