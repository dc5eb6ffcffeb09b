#include "ops/attention/causal_linear_attention.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <utility>

#include "ops/attention/attention_operands.h"
#include "ops/attention/causal_linear_attention_tensor.h"
#include "ops/kernels/step.h"
#include "ops/runtime/cuda_library.h"
#include "ops/runtime/launch.h"
#include "ops/runtime/scratch.h"
#include "ops/runtime/short_loop.h"

namespace transnormer::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Carries the encoding from forward to backward; autograd's own store holds tensors and numbers
// only.
struct EncodingHolder : torch::CustomClassHolder {
  explicit EncodingHolder(KernelEncoding made) : encoding(std::move(made)) {}
  KernelEncoding encoding;
};

kernels::LinearAttention shape_of(const AttentionOperands& x, const KernelEncoding& encoding) {
  return {.first = 0,
          .last = 0,
          .time = x.q.size(1),
          .heads = x.q.size(2),
          .key_dim = x.q.size(3),
          .value_dim = x.v.size(3),
          .scratch = nullptr,
          .strides = x.strides(),
          .gradient_strides = {},
          .encoding = encoding.view()};
}

bool kernel_fits(const at::Tensor& q, const at::Tensor& v, const Encoding& encoding) {
  const bool serve = kernel_serves(q, &kernels::Kernels::linear_attention) &&
                     kernel_serves(q, &kernels::Kernels::linear_attention_backward);
  if (!serve || !encoding_fits(q, encoding)) {
    return false;
  }
  if (q.is_cpu()) {
    return true;
  }
  kernels::LinearAttention shape{};
  shape.key_dim = q.size(3);
  shape.value_dim = v.size(3);
  return cuda_library()->linear_attention_fits(shape);
}

// Heads are independent: on a CPU each thread takes some neighbours of them, with buffers of its
// own. Calls body(kernels, part).
template <typename Body>
void for_heads(const at::Tensor& q, const kernels::LinearAttention& shape, const Body& body) {
  launch(q, q.size(0) * shape.heads, 1,
         [&](const kernels::Kernels& set, std::int64_t first, std::int64_t last) {
           const Scratch scratch(
               q.is_cpu() ? kernels::linear_attention_scratch(std::min(shape.heads, last - first),
                                                              shape.key_dim, shape.value_dim)
                          : 0);
           kernels::LinearAttention part = shape;
           part.first = first;
           part.last = last;
           part.scratch = scratch.data();
           body(set, part);
         });
}

at::Tensor kernel_forward(const AttentionOperands& x, const at::Tensor& state,
                          const KernelEncoding& encoding) {
  const bool half = x.q.scalar_type() == at::kHalf;
  const at::Tensor y =
      at::empty(x.v.sizes(), x.v.options().dtype(half ? at::kFloat : x.q.scalar_type()));
  const at::Tensor sums = state.defined() ? state.contiguous() : state;
  auto* sum = state.defined() ? sums.mutable_data_ptr<float>() : nullptr;
  for_heads(x.q, shape_of(x, encoding),
            [&](const kernels::Kernels& set, const kernels::LinearAttention& part) {
              set.linear_attention(part, in(x.q), in(x.k), in(x.v), out(y), sum);
            });
  if (state.defined() && !sums.is_same(state)) {
    at::Tensor(state).copy_(sums);
  }
  return y;
}

// One time on a CPU.
at::Tensor step_forward(const AttentionOperands& x, const at::Tensor& state,
                        const KernelEncoding& encoding) {
  const at::Tensor y = at::empty(x.v.sizes(), x.v.options());
  const kernels::LinearAttention shape = shape_of(x, encoding);
  const std::int64_t state_size = shape.key_dim * shape.value_dim;
  short_parallel_for(
      x.q.size(0) * shape.heads,
      std::max<std::int64_t>(kGrain / std::max<std::int64_t>(state_size, 1), 1),
      [&](std::int64_t first, std::int64_t last) {
        const Scratch scratch(kernels::linear_attention_scratch(1, shape.key_dim, shape.value_dim));
        kernels::LinearAttention part = shape;
        part.first = first;
        part.last = last;
        part.scratch = scratch.data();
        kernels_in_use(at::kCPU).step->linear_attention(part, in(x.q), in(x.k), in(x.v), out(y),
                                                        state.mutable_data_ptr<float>());
      });
  return y;
}

// By a kernel, which encodes on the fly.
struct EncodedLinearAttention : torch::autograd::Function<EncodedLinearAttention> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v, const std::optional<at::Tensor>& /*theta*/,
                            const Encoding& encoding) {
    const auto holder = c10::make_intrusive<EncodingHolder>(KernelEncoding(encoding, q.size(1)));
    context->save_for_backward({q, k, v});
    context->saved_data["encoding"] = c10::IValue::make_capsule(holder);
    return kernel_forward({q, k, v}, {}, holder->encoding);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const auto holder = c10::static_intrusive_pointer_cast<EncodingHolder>(
        context->saved_data["encoding"].toCapsule());
    const AttentionOperands x(saved[0], saved[1], saved[2]);
    // A GPU's kernel takes the single precision that it gave for half.
    const at::Tensor gradient =
        x.q.is_cpu() ? dense_like(gradients[0], x.q) : gradients[0].contiguous();
    const AttentionOperands d = unfilled_gradients(x);
    const ThetaGradient d_theta(x.q, holder->encoding.has_lrpe());
    kernels::LinearAttention shape = shape_of(x, holder->encoding);
    shape.gradient_strides = d.strides();
    for_heads(x.q, shape, [&](const kernels::Kernels& set, const kernels::LinearAttention& part) {
      set.linear_attention_backward(part, in(x.q), in(x.k), in(x.v), in(gradient), out(d.q),
                                    out(d.k), out(d.v), d_theta.data());
    });
    return {d.q, d.k.to(saved[1].scalar_type()), d.v.to(saved[2].scalar_type()), d_theta.sum(), {}};
  }
};

// By tensor operations, of operands that are encoded already.
struct LinearAttention : torch::autograd::Function<LinearAttention> {
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

at::Tensor causal_linear_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                   const Encoding& encoding) {
  if (!kernel_fits(q, v, encoding)) {
    return LinearAttention::apply(encode(q, encoding), encode(k, encoding), v);
  }
  return EncodedLinearAttention::apply(q, k, v, theta_of(encoding), encoding);
}

at::Tensor causal_linear_attention_step(const at::Tensor& q, const at::Tensor& k,
                                        const at::Tensor& v, at::Tensor& state,
                                        const Encoding& encoding) {
  const at::NoGradGuard no_gradients;
  if (!kernel_fits(q, v, encoding)) {
    return chunked_forward(encode(q, encoding), encode(k, encoding), v, state);
  }
  const KernelEncoding ready(encoding, q.size(1));
  if (q.is_cpu() && q.size(1) == 1 && state.is_contiguous() &&
      kernel_serves(q, &kernels::Kernels::step)) {
    return step_forward({q, k, v}, state, ready);
  }
  return kernel_forward({q, k, v}, state, ready);
}

}  // namespace transnormer::ops
