#include "ops/causal_linear_attention.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "ops/causal_linear_attention_tensor.h"

namespace transnormer::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct CausalLinearAttention : torch::autograd::Function<CausalLinearAttention> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v) {
    context->save_for_backward({q, k, v});
    return chunked_forward(q, k, v, {});
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    LinearAttentionGradients d = chunked_backward(saved[0], saved[1], saved[2], gradients[0]);
    return {d.q, d.k, d.v};
  }
};

}  // namespace

at::Tensor causal_linear_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  return CausalLinearAttention::apply(q, k, v);
}

at::Tensor causal_linear_attention_step(const at::Tensor& q, const at::Tensor& k,
                                        const at::Tensor& v, at::Tensor& state) {
  const at::NoGradGuard no_gradients;
  return chunked_forward(q, k, v, state);
}

at::Tensor causal_linear_attention_reference(const at::Tensor& q, const at::Tensor& k,
                                             const at::Tensor& v) {
  const at::Tensor scores = at::einsum("bthd,bshd->bhts", {q, k}).tril();
  return at::einsum("bhts,bshd->bthd", {scores, v});
}

}  // namespace transnormer::ops
