#include "ops/causal_linear_attention.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "ops/causal_linear_attention_tensor.h"
#include "ops/kernel_view.h"
#include "ops/parallel.h"
#include "ops/scratch.h"

namespace transnormer::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

kernels::LinearAttention shape_of(const at::Tensor& q, const at::Tensor& v) {
  return {.first = 0,
          .last = 0,
          .time = q.size(1),
          .heads = q.size(2),
          .key_dim = q.size(3),
          .value_dim = v.size(3),
          .scratch = nullptr};
}

// Heads are independent: each thread takes some of them with buffers of its own.
template <typename Body>
void for_heads(const kernels::LinearAttention& shape, std::int64_t batch, const Body& body) {
  parallel_for(batch * shape.heads, 1, [&](std::int64_t first, std::int64_t last) {
    const Scratch scratch(kernels::linear_attention_scratch(shape.key_dim, shape.value_dim));
    kernels::LinearAttention part = shape;
    part.first = first;
    part.last = last;
    part.scratch = scratch.data();
    body(part);
  });
}

at::Tensor forward_of(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                      const at::Tensor& state) {
  if (!kernel_type(q)) {
    return chunked_forward(q, k, v, state);
  }
  const at::Tensor query = q.contiguous();
  const at::Tensor key = dense_like(k, q);
  const at::Tensor value = dense_like(v, q);
  const at::Tensor y = at::empty(v.sizes(), q.options());
  const at::Tensor sums = state.defined() ? state.contiguous() : state;
  auto* sum = state.defined() ? sums.mutable_data_ptr<float>() : nullptr;
  for_heads(shape_of(q, v), q.size(0), [&](const kernels::LinearAttention& part) {
    kernels::kernels().linear_attention(part, in(query), in(key), in(value), out(y), sum);
  });
  if (state.defined() && !sums.is_same(state)) {
    at::Tensor(state).copy_(sums);
  }
  return y;
}

LinearAttentionGradients backward_of(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                     const at::Tensor& d_out) {
  if (!kernel_type(q)) {
    return chunked_backward(q, k, v, d_out);
  }
  const at::Tensor query = q.contiguous();
  const at::Tensor key = dense_like(k, q);
  const at::Tensor value = dense_like(v, q);
  const at::Tensor gradient = dense_like(d_out, q);
  const at::Tensor d_q = empty_dense(query);
  const at::Tensor d_k = empty_dense(key);
  const at::Tensor d_v = empty_dense(value);
  for_heads(shape_of(q, v), q.size(0), [&](const kernels::LinearAttention& part) {
    kernels::kernels().linear_attention_backward(part, in(query), in(key), in(value), in(gradient),
                                                 out(d_q), out(d_k), out(d_v));
  });
  return {d_q, d_k.to(k.scalar_type()), d_v.to(v.scalar_type())};
}

struct CausalLinearAttention : torch::autograd::Function<CausalLinearAttention> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v) {
    context->save_for_backward({q, k, v});
    return forward_of(q, k, v, {});
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    LinearAttentionGradients d = backward_of(saved[0], saved[1], saved[2], gradients[0]);
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
  return forward_of(q, k, v, state);
}

}  // namespace transnormer::ops
