#include "ops/block_attention.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <limits>

#include "ops/block_attention_tensor.h"

namespace transnormer::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Carries the options from forward to backward; autograd's own store holds tensors and numbers
// only.
struct OptionsHolder : torch::CustomClassHolder {
  explicit OptionsHolder(const BlockAttentionOptions& values) : options(values) {}
  BlockAttentionOptions options;
};

struct BlockAttention : torch::autograd::Function<BlockAttention> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v, const BlockAttentionOptions& options) {
    context->save_for_backward({q, k, v});
    context->saved_data["options"] =
        c10::IValue::make_capsule(c10::make_intrusive<OptionsHolder>(options));
    return tiled_forward(q, k, v, options);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const auto holder = c10::static_intrusive_pointer_cast<OptionsHolder>(
        context->saved_data["options"].toCapsule());
    BlockAttentionGradients d =
        tiled_backward(saved[0], saved[1], saved[2], gradients[0], holder->options);
    return {d.q, d.k, d.v, {}};
  }
};

// The library's fused attention has no dropout by counter and no ReLU.
bool library_attention_fits(const BlockAttentionOptions& options) {
  return options.block == 0 && options.score == ScoreKind::softmax && options.dropout == 0;
}

}  // namespace

at::Tensor block_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const BlockAttentionOptions& options) {
  if (library_attention_fits(options)) {
    return at::scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2),
                                            {}, 0, true, options.scale)
        .transpose(1, 2);
  }
  return BlockAttention::apply(q, k, v, options);
}

at::Tensor attention_step(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                          ScoreKind score, double scale) {
  const at::NoGradGuard no_gradients;
  const std::int64_t time = q.size(1);
  const std::int64_t total = k.size(1);
  const at::Tensor query = q.transpose(1, 2).to(at::kFloat) * scale;
  at::Tensor weights = at::matmul(query, k.transpose(1, 2).to(at::kFloat).transpose(2, 3));
  const at::Tensor hidden =
      at::ones({time, total}, weights.options().dtype(at::kBool)).triu(total - time + 1);
  weights = score == ScoreKind::softmax
                ? weights.masked_fill_(hidden, -std::numeric_limits<float>::infinity()).softmax(-1)
                : weights.masked_fill_(hidden, 0).relu_();
  return at::matmul(weights, v.transpose(1, 2).to(at::kFloat)).transpose(1, 2).to(q.scalar_type());
}

}  // namespace transnormer::ops
