#include "ops/attention/block_attention.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "ops/attention/attention_operands.h"
#include "ops/attention/block_attention_tensor.h"
#include "ops/kernels/step.h"
#include "ops/runtime/cuda_library.h"
#include "ops/runtime/launch.h"
#include "ops/runtime/philox_tensor.h"
#include "ops/runtime/scratch.h"
#include "ops/runtime/short_loop.h"

namespace transnormer::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr std::int64_t kWidestBlock = 256;  // whose scores still fit a core's cache

// Carries what is no tensor from forward to backward; autograd's own store holds tensors and
// numbers only.
struct OptionsHolder : torch::CustomClassHolder {
  OptionsHolder(const BlockAttentionOptions& values, KernelEncoding made)
      : options(values), encoding(std::move(made)) {
    options.encoding = {};  // made ready beside it; its tensors are not held twice
  }
  BlockAttentionOptions options;
  KernelEncoding encoding;
};

// The library's fused attention has no dropout by counter and no ReLU. In blocks it is as exact as
// the products' type, so it is for half precision; single precision goes there where no kernel
// fits.
bool fused_attention_serves(const BlockAttentionOptions& options) {
  return options.score == ScoreKind::softmax && options.dropout == 0;
}

bool prefers_fused_attention(const at::Tensor& q, const BlockAttentionOptions& options) {
  if (options.block == 0) {
    return true;
  }
  switch (operator_choices().fused_attention) {
    case Use::never:
      return false;
    case Use::always:
      return true;
    case Use::where_it_helps:
      break;
  }
  return q.is_cuda() && q.scalar_type() != at::kFloat;
}

bool kernel_fits(const at::Tensor& q, const at::Tensor& v, const BlockAttentionOptions& options) {
  const bool serve = kernel_serves(q, &kernels::Kernels::block_attention) &&
                     kernel_serves(q, &kernels::Kernels::block_attention_backward);
  if (!serve || !encoding_fits(q, options.encoding) || options.block == 0 ||
      q.size(3) != v.size(3)) {
    return false;
  }
  if (q.is_cpu()) {
    return options.block <= kWidestBlock;
  }
  kernels::BlockAttention shape{};
  shape.dim = q.size(3);
  shape.block = options.block;
  return cuda_library()->block_attention_fits(shape);
}

kernels::BlockAttention shape_of(const AttentionOperands& x, const OptionsHolder& held) {
  const BlockAttentionOptions& options = held.options;
  return {.first = 0,
          .last = 0,
          .time = x.q.size(1),
          .heads = x.q.size(2),
          .dim = x.q.size(3),
          .block = options.block,
          .scale = static_cast<float>(options.scale),
          .softmax = options.score == ScoreKind::softmax,
          .drops = options.dropout > 0,
          .mask = kernel_mask(options.dropout_key, options.dropout, 0, 0),
          .scratch = nullptr,
          .strides = x.strides(),
          .gradient_strides = {},
          .encoding = held.encoding.view()};
}

// Heads are independent: on a CPU each thread takes some neighbours of them, with buffers of its
// own. Calls body(kernels, part).
template <typename Body>
void for_heads(const at::Tensor& q, const kernels::BlockAttention& shape, const Body& body) {
  launch(q, q.size(0) * shape.heads, 1,
         [&](const kernels::Kernels& set, std::int64_t first, std::int64_t last) {
           const Scratch scratch(
               q.is_cpu() ? kernels::block_attention_scratch(shape.block, shape.dim) : 0);
           kernels::BlockAttention part = shape;
           part.first = first;
           part.last = last;
           part.scratch = scratch.data();
           body(set, part);
         });
}

// By a kernel, which encodes on the fly.
struct EncodedBlockAttention : torch::autograd::Function<EncodedBlockAttention> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v, const std::optional<at::Tensor>& /*theta*/,
                            const BlockAttentionOptions& options) {
    const auto held =
        c10::make_intrusive<OptionsHolder>(options, KernelEncoding(options.encoding, q.size(1)));
    context->save_for_backward({q, k, v});
    context->saved_data["options"] = c10::IValue::make_capsule(held);
    const AttentionOperands x(q, k, v);
    const at::Tensor y = empty_dense(x.q);
    for_heads(x.q, shape_of(x, *held),
              [&](const kernels::Kernels& set, const kernels::BlockAttention& part) {
                set.block_attention(part, in(x.q), in(x.k), in(x.v), out(y));
              });
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const auto held = c10::static_intrusive_pointer_cast<OptionsHolder>(
        context->saved_data["options"].toCapsule());
    const AttentionOperands x(saved[0], saved[1], saved[2]);
    const at::Tensor gradient = dense_like(gradients[0], x.q);
    const AttentionOperands d = unfilled_gradients(x);
    const ThetaGradient d_theta(x.q, held->encoding.has_lrpe());
    kernels::BlockAttention shape = shape_of(x, *held);
    shape.gradient_strides = d.strides();
    for_heads(x.q, shape, [&](const kernels::Kernels& set, const kernels::BlockAttention& part) {
      set.block_attention_backward(part, in(x.q), in(x.k), in(x.v), in(gradient), out(d.q),
                                   out(d.k), out(d.v), d_theta.data());
    });
    return {d.q, d.k.to(saved[1].scalar_type()), d.v.to(saved[2].scalar_type()), d_theta.sum(), {}};
  }
};

// By tensor operations, of operands that are encoded already.
struct BlockAttention : torch::autograd::Function<BlockAttention> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v, const BlockAttentionOptions& options) {
    context->save_for_backward({q, k, v});
    context->saved_data["options"] = c10::IValue::make_capsule(
        c10::make_intrusive<OptionsHolder>(options, KernelEncoding({}, q.size(1))));
    return tiled_forward(q, k, v, options);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const auto held = c10::static_intrusive_pointer_cast<OptionsHolder>(
        context->saved_data["options"].toCapsule());
    BlockAttentionGradients d =
        tiled_backward(saved[0], saved[1], saved[2], gradients[0], held->options);
    return {d.q, d.k, d.v, {}};
  }
};

// By the library's attention, of operands that are encoded already. Blocks are sequences of their
// own; what the last one lacks is padded behind its end, where no token sees it.
at::Tensor fused_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const BlockAttentionOptions& options) {
  const std::int64_t batch = q.size(0);
  const std::int64_t time = q.size(1);
  const std::int64_t block = options.block == 0 ? time : std::min(options.block, time);
  const std::int64_t blocks = (time + block - 1) / block;
  const auto cut = [&](const at::Tensor& x) {
    const std::int64_t lacking = blocks * block - time;
    const at::Tensor whole = lacking > 0 ? at::constant_pad_nd(x, {0, 0, 0, 0, 0, lacking}) : x;
    return whole.reshape({batch * blocks, block, x.size(2), x.size(3)}).transpose(1, 2);
  };
  return at::scaled_dot_product_attention(cut(q), cut(k), cut(v), {}, 0, true, options.scale)
      .transpose(1, 2)
      .reshape({batch, blocks * block, q.size(2), v.size(3)})
      .narrow(1, 0, time);
}

// Whether rows [batch, time, heads, dim] of a cache are dense within a batch row.
bool dense_rows(const at::Tensor& x) {
  return x.stride(3) == 1 && x.stride(2) == x.size(3) && x.stride(1) == x.size(2) * x.size(3);
}

bool step_kernel_fits(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  return q.is_cpu() && kernel_serves(q, &kernels::Kernels::step) && q.size(1) == 1 &&
         k.scalar_type() == q.scalar_type() && v.scalar_type() == q.scalar_type() &&
         k.size(1) > 0 && k.sizes() == v.sizes() && k.strides() == v.strides() && dense_rows(k);
}

// One time on a CPU, dense_rows() in the cache.
at::Tensor step_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                        ScoreKind score, double scale) {
  const at::Tensor queries = q.contiguous();
  const at::Tensor y = empty_dense(queries);
  const kernels::CachedAttention shape{.first = 0,
                                       .last = 0,
                                       .heads = k.size(2),
                                       .dim = k.size(3),
                                       .keys = k.size(1),
                                       .scale = static_cast<float>(scale),
                                       .softmax = score == ScoreKind::softmax,
                                       .scratch = nullptr,
                                       .query_stride = k.size(2) * k.size(3),
                                       .cache_stride = k.stride(0)};
  short_parallel_for(
      q.size(0) * shape.heads, std::max<std::int64_t>(kGrain / (shape.keys * shape.dim), 1),
      [&](std::int64_t first, std::int64_t last) {
        const Scratch scratch(kernels::cached_attention_scratch(shape.keys, shape.dim));
        kernels::CachedAttention part = shape;
        part.first = first;
        part.last = last;
        part.scratch = scratch.data();
        kernels_in_use(at::kCPU).step->cached_attention(part, in(queries), in(k), in(v), out(y));
      });
  return y;
}

}  // namespace

at::Tensor block_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const BlockAttentionOptions& options) {
  const bool fused = fused_attention_serves(options);
  if (!(fused && prefers_fused_attention(q, options)) && kernel_fits(q, v, options)) {
    return EncodedBlockAttention::apply(q, k, v, theta_of(options.encoding), options);
  }
  const at::Tensor query = encode(q, options.encoding);
  const at::Tensor key = encode(k, options.encoding);
  const bool only_way = q.is_cuda() && operator_choices().fused_attention != Use::never;
  return fused && (only_way || prefers_fused_attention(q, options))
             ? fused_attention(query, key, v, options)
             : BlockAttention::apply(query, key, v, options);
}

at::Tensor attention_step(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                          ScoreKind score, double scale) {
  const at::NoGradGuard no_gradients;
  if (step_kernel_fits(q, k, v)) {
    return step_forward(q, k, v, score, scale);
  }
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
