#include "ops/block_attention.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <limits>

#include "ops/block_attention_tensor.h"
#include "ops/kernel_view.h"
#include "ops/parallel.h"
#include "ops/philox_tensor.h"
#include "ops/scratch.h"

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

constexpr std::int64_t kWidestBlock = 256;  // whose scores still fit a core's cache

bool kernel_fits(const at::Tensor& q, const at::Tensor& v, const BlockAttentionOptions& options) {
  return kernel_type(q) && options.block > 0 && options.block <= kWidestBlock &&
         q.size(3) == v.size(3);
}

// Heads are independent: each thread takes some of them with buffers of its own.
template <typename Body>
void for_heads(const at::Tensor& q, const BlockAttentionOptions& options, const Body& body) {
  kernels::BlockAttention shape{.first = 0,
                                .last = 0,
                                .time = q.size(1),
                                .heads = q.size(2),
                                .dim = q.size(3),
                                .block = options.block,
                                .scale = static_cast<float>(options.scale),
                                .softmax = options.score == ScoreKind::softmax,
                                .drops = options.dropout > 0,
                                .mask = kernel_mask(options.dropout_key, options.dropout, 0, 0),
                                .scratch = nullptr};
  parallel_for(q.size(0) * shape.heads, 1, [&](std::int64_t first, std::int64_t last) {
    const Scratch scratch(kernels::block_attention_scratch(shape.block, shape.dim));
    kernels::BlockAttention part = shape;
    part.first = first;
    part.last = last;
    part.scratch = scratch.data();
    body(part);
  });
}

at::Tensor forward_of(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                      const BlockAttentionOptions& options) {
  if (!kernel_fits(q, v, options)) {
    return tiled_forward(q, k, v, options);
  }
  const at::Tensor query = q.contiguous();
  const at::Tensor key = dense_like(k, q);
  const at::Tensor value = dense_like(v, q);
  const at::Tensor y = empty_dense(query);
  for_heads(q, options, [&](const kernels::BlockAttention& part) {
    kernels::kernels().block_attention(part, in(query), in(key), in(value), out(y));
  });
  return y;
}

BlockAttentionGradients backward_of(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                    const at::Tensor& d_out, const BlockAttentionOptions& options) {
  if (!kernel_fits(q, v, options)) {
    return tiled_backward(q, k, v, d_out, options);
  }
  const at::Tensor query = q.contiguous();
  const at::Tensor key = dense_like(k, q);
  const at::Tensor value = dense_like(v, q);
  const at::Tensor gradient = dense_like(d_out, q);
  const at::Tensor d_q = empty_dense(query);
  const at::Tensor d_k = empty_dense(query);
  const at::Tensor d_v = empty_dense(query);
  for_heads(q, options, [&](const kernels::BlockAttention& part) {
    kernels::kernels().block_attention_backward(part, in(query), in(key), in(value), in(gradient),
                                                out(d_q), out(d_k), out(d_v));
  });
  return {d_q, d_k.to(k.scalar_type()), d_v.to(v.scalar_type())};
}

struct BlockAttention : torch::autograd::Function<BlockAttention> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v, const BlockAttentionOptions& options) {
    context->save_for_backward({q, k, v});
    context->saved_data["options"] =
        c10::IValue::make_capsule(c10::make_intrusive<OptionsHolder>(options));
    return forward_of(q, k, v, options);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const auto holder = c10::static_intrusive_pointer_cast<OptionsHolder>(
        context->saved_data["options"].toCapsule());
    BlockAttentionGradients d =
        backward_of(saved[0], saved[1], saved[2], gradients[0], holder->options);
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
