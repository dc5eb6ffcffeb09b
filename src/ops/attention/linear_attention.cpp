#include "ops/attention/linear_attention.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <utility>

#include "ops/attention/attention_operands.h"
#include "ops/attention/groups.h"
#include "ops/attention/linear_attention_tensor.h"
#include "ops/attention/sequence_sums.h"
#include "ops/kernels/step.h"
#include "ops/runtime/carry.h"
#include "ops/runtime/cuda_library.h"
#include "ops/runtime/launch.h"
#include "ops/runtime/scratch.h"
#include "ops/runtime/short_loop.h"

namespace transnormer::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// What a kernel's passes share beside the operands.
struct Shared {
  Shared(const Encoding& encoding, std::int64_t time, const dist::Group* group = nullptr)
      : feature(feature_of(encoding)), lrpe(table_of(encoding, time)), sequence(group) {}
  kernels::Feature feature;
  LrpeTable lrpe;
  const dist::Group* sequence;  // null: the sequences are whole
};

kernels::LinearAttention shape_of(const AttentionOperands& x, const Shared& shared) {
  return {.first = 0,
          .last = 0,
          .time = x.q.size(1),
          .heads = x.q.size(2),
          .key_dim = x.q.size(3),
          .value_dim = x.v.size(3),
          .scratch = nullptr,
          .strides = x.strides(),
          .gradient_strides = {},
          .feature = shared.feature,
          .lrpe = shared.lrpe.view()};
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
                          const Shared& shared) {
  const bool half = x.q.scalar_type() == at::kHalf;
  const at::Tensor y =
      at::empty(x.v.sizes(), x.v.options().dtype(half ? at::kFloat : x.q.scalar_type()));
  const at::Tensor sums = state.defined() ? state.contiguous() : state;
  auto* sum = state.defined() ? sums.mutable_data_ptr<float>() : nullptr;
  for_heads(x.q, shape_of(x, shared),
            [&](const kernels::Kernels& set, const kernels::LinearAttention& part) {
              set.linear_attention(part, in(x.q), in(x.k), in(x.v), out(y), sum);
            });
  if (state.defined() && !sums.is_same(state)) {
    at::Tensor(state).copy_(sums);
  }
  return y;
}

// The sum of a b^T over all times: of keys and values, or of queries and gradients of the output.
// strides: from one time's row of each to the next, 0 where dense.
at::Tensor kernel_sum(kernels::LinearAttention shape, const at::Tensor& a, std::int64_t a_stride,
                      const at::Tensor& b, std::int64_t b_stride) {
  shape.strides = {.q = 0, .k = a_stride, .v = b_stride};
  const at::Tensor sum = at::zeros({a.size(0), shape.heads, shape.key_dim, shape.value_dim},
                                   a.options().dtype(at::kFloat));
  for_heads(a, shape, [&](const kernels::Kernels& set, const kernels::LinearAttention& part) {
    set.linear_attention(part, {}, in(a), in(b), {}, sum.mutable_data_ptr<float>());
  });
  return sum;
}

// One time on a CPU.
at::Tensor step_forward(const AttentionOperands& x, const at::Tensor& state, const Shared& shared) {
  const at::Tensor y = at::empty(x.v.sizes(), x.v.options());
  const kernels::LinearAttention shape = shape_of(x, shared);
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

// A copy of the sum to start from, which the forward passes bring up to date; or undefined.
at::Tensor start_from(const at::Tensor& before) {
  return before.defined() ? before.clone() : before;
}

// q, k, v, and where the sequences are shared the sum before them.
variable_list kept(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                   const at::Tensor& before) {
  variable_list all{q, k, v};
  if (before.defined()) {
    all.push_back(before);
  }
  return all;
}

at::Tensor kept_before(const variable_list& saved) {
  return saved.size() > 3 ? saved[3] : at::Tensor();
}

const float* data_of(const at::Tensor& sum) {
  return sum.defined() ? sum.const_data_ptr<float>() : nullptr;
}

// By a kernel, which encodes on the fly.
struct EncodedLinearAttention : torch::autograd::Function<EncodedLinearAttention> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v, const std::optional<at::Tensor>& /*theta*/,
                            const Encoding& encoding, const dist::Group* sequence) {
    const auto& shared = carry(context, Shared(encoding, q.size(1), sequence));
    const AttentionOperands x(q, k, v);
    at::Tensor before;
    if (sequence != nullptr) {
      const kernels::LinearAttention shape = shape_of(x, shared);
      before = sums_of_ranks_before(*sequence,
                                    kernel_sum(shape, x.k, shape.strides.k, x.v, shape.strides.v));
    }
    context->save_for_backward(kept(q, k, v, before));
    return kernel_forward(x, start_from(before), shared);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const auto& shared = carried<Shared>(context);
    const AttentionOperands x(saved[0], saved[1], saved[2]);
    // A GPU's kernel takes the single precision that it gave for half.
    const at::Tensor gradient =
        x.q.is_cpu() ? dense_like(gradients[0], x.q) : gradients[0].contiguous();
    const AttentionOperands d = unfilled_gradients(x);
    const ThetaGradient d_theta(x.q, !shared.lrpe.empty());
    kernels::LinearAttention shape = shape_of(x, shared);
    shape.gradient_strides = d.strides();
    const at::Tensor before = kept_before(saved);
    at::Tensor behind;
    if (shared.sequence != nullptr) {
      behind = sums_of_ranks_behind(*shared.sequence,
                                    kernel_sum(shape, x.q, shape.strides.q, gradient, 0));
    }
    for_heads(x.q, shape, [&](const kernels::Kernels& set, const kernels::LinearAttention& part) {
      set.linear_attention_backward(part, in(x.q), in(x.k), in(x.v), in(gradient), out(d.q),
                                    out(d.k), out(d.v), d_theta.data(),
                                    {data_of(before), data_of(behind)});
    });
    return {d.q, d.k.to(saved[1].scalar_type()), d.v.to(saved[2].scalar_type()), d_theta.sum(), {},
            {}};
  }
};

// By tensor operations, of operands that are encoded already.
struct LinearAttention : torch::autograd::Function<LinearAttention> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v, const dist::Group* sequence) {
    carry(context, sequence);
    const at::Tensor before =
        sequence != nullptr ? sums_of_ranks_before(*sequence, sum_of_times(k, v)) : at::Tensor();
    context->save_for_backward(kept(q, k, v, before));
    return chunked_forward(q, k, v, start_from(before));
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const auto* const sequence = carried<const dist::Group*>(context);
    SumsAround around{.before = kept_before(saved)};
    if (sequence != nullptr) {
      around.behind = sums_of_ranks_behind(*sequence, sum_of_times(saved[0], gradients[0]));
    }
    LinearAttentionGradients d =
        chunked_backward(saved[0], saved[1], saved[2], gradients[0], around);
    return {d.q, d.k, d.v, {}};
  }
};

struct BidirectionalLinearAttention : torch::autograd::Function<BidirectionalLinearAttention> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v) {
    context->save_for_backward({q, k, v});
    return bidirectional_forward(q, k, v);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    LinearAttentionGradients d = bidirectional_backward(saved[0], saved[1], saved[2], gradients[0]);
    return {d.q, d.k, d.v};
  }
};

// Of operands that are encoded already. Values behind a row's last token must be zero: what keys
// stand there does not matter then.
at::Tensor of_rows(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool causal,
                   const dist::Group* sequence) {
  if (!causal) {
    return BidirectionalLinearAttention::apply(q, k, v);
  }
  return kernel_fits(q, v, {})
             ? EncodedLinearAttention::apply(q, k, v, std::nullopt, Encoding{}, sequence)
             : LinearAttention::apply(q, k, v, sequence);
}

}  // namespace

at::Tensor linear_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const LinearAttentionOptions& options) {
  const Encoding& encoding = options.encoding;
  const Visibility& visibility = options.visibility;
  const bool is_shared = options.sequence != nullptr && options.sequence->size() > 1;
  const dist::Group* const sequence = is_shared ? options.sequence : nullptr;
  TORCH_CHECK(
      sequence == nullptr || visibility.plain(),
      "linear attention: sequences on several ranks are causal, without padding and segments");
  if (visibility.plain() && kernel_fits(q, v, encoding)) {
    return EncodedLinearAttention::apply(q, k, v, theta_of(encoding), encoding, sequence);
  }
  if (visibility.whole_rows()) {
    return of_rows(encode(q, encoding), encode(k, encoding), v, visibility.causal, sequence);
  }
  const Groups groups(visibility, q.size(0), q.size(1), 0, q.device());
  return by_groups(
      groups, q, k, v, encoding,
      [&](const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
          const RowsOfTokens&) { return of_rows(query, key, value, visibility.causal, nullptr); });
}

at::Tensor linear_attention_step(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                 at::Tensor& state, const Encoding& encoding) {
  const at::NoGradGuard no_gradients;
  if (!kernel_fits(q, v, encoding)) {
    return chunked_forward(encode(q, encoding), encode(k, encoding), v, state);
  }
  const Shared shared(encoding, q.size(1));
  if (q.is_cpu() && q.size(1) == 1 && state.is_contiguous() &&
      kernel_serves(q, &kernels::Kernels::step)) {
    return step_forward({q, k, v}, state, shared);
  }
  return kernel_forward({q, k, v}, state, shared);
}

}  // namespace transnormer::ops
