#include "ops/attention/block_attention.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>

#include "ops/attention/attention_operands.h"
#include "ops/attention/block_attention_tensor.h"
#include "ops/attention/groups.h"
#include "ops/kernels/step.h"
#include "ops/runtime/carry.h"
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

// For a kernel, which encodes on the fly.
struct KernelOptions {
  KernelOptions(const BlockAttentionOptions& values, std::int64_t time)
      : options(values), lrpe(table_of(values.encoding, time)) {
    options.encoding.theta = at::Tensor();  // its table is beside it
  }
  BlockAttentionOptions options;
  LrpeTable lrpe;
};

// The library's fused attention has no dropout by counter, no ReLU and one width. In blocks it is
// as exact as the products' type, so it is for half precision; single precision goes there where no
// kernel fits.
bool fused_attention_serves(const at::Tensor& q, const at::Tensor& v,
                            const BlockAttentionOptions& options) {
  return options.score == ScoreKind::softmax && options.dropout == 0 && q.size(3) == v.size(3);
}

bool prefers_fused_attention(const at::Tensor& q) {
  return is_used(operator_choices().fused_attention, q.is_cuda() && q.scalar_type() != at::kFloat);
}

// For tensor operations, of operands that are encoded already.
struct TensorOptions {
  BlockAttentionOptions options;
  std::optional<RowsOfTokens> tokens;  // where they were gathered
};

const RowsOfTokens* tokens_of(const TensorOptions& held) {
  return held.tokens ? &*held.tokens : nullptr;
}

bool kernel_fits(const at::Tensor& q, const at::Tensor& v, const BlockAttentionOptions& options) {
  const bool serve = kernel_serves(q, &kernels::Kernels::block_attention) &&
                     kernel_serves(q, &kernels::Kernels::block_attention_backward);
  if (!serve || !options.visibility.plain() || !encoding_fits(q, options.encoding) ||
      options.block == 0 || q.size(3) != v.size(3)) {
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

kernels::BlockAttention shape_of(const AttentionOperands& x, const KernelOptions& held) {
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
          .feature = feature_of(options.encoding),
          .lrpe = held.lrpe.view()};
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
    context->save_for_backward({q, k, v});
    const auto& held = carry(context, KernelOptions(options, q.size(1)));
    const AttentionOperands x(q, k, v);
    const at::Tensor y = empty_dense(x.q);
    for_heads(x.q, shape_of(x, held),
              [&](const kernels::Kernels& set, const kernels::BlockAttention& part) {
                set.block_attention(part, in(x.q), in(x.k), in(x.v), out(y));
              });
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const auto& held = carried<KernelOptions>(context);
    const AttentionOperands x(saved[0], saved[1], saved[2]);
    const at::Tensor gradient = dense_like(gradients[0], x.q);
    const AttentionOperands d = unfilled_gradients(x);
    const ThetaGradient d_theta(x.q, !held.lrpe.empty());
    kernels::BlockAttention shape = shape_of(x, held);
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
                            const at::Tensor& v, const TensorOptions& held) {
    context->save_for_backward({q, k, v});
    carry(context, held);
    return tiled_forward(q, k, v, held.options, tokens_of(held));
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const auto& held = carried<TensorOptions>(context);
    BlockAttentionGradients d =
        tiled_backward(saved[0], saved[1], saved[2], gradients[0], held.options, tokens_of(held));
    return {d.q, d.k, d.v, {}};
  }
};

// By the library's attention, of operands that are encoded already. `tokens`: null, or of which
// they were gathered.
at::Tensor library_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             bool causal, double scale, const RowsOfTokens* tokens) {
  std::optional<at::Tensor> seen;
  if (!causal && tokens != nullptr) {
    const at::Tensor number = at::arange(tokens->length, tokens->lengths.options());
    seen = (number < tokens->lengths.unsqueeze(1))
               .view({tokens->rows, 1, 1, tokens->length})
               .expand({tokens->rows, 1, tokens->length, tokens->length});
  }
  return at::scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2),
                                          seen, 0, causal, scale)
      .transpose(1, 2);
}

// The same with plain visibility in blocks: these are sequences of their own; what the last one
// lacks is padded behind its end, where no token sees it.
at::Tensor fused_blocks(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                        const BlockAttentionOptions& options) {
  const std::int64_t batch = q.size(0);
  const std::int64_t time = q.size(1);
  const std::int64_t block = std::min(options.block, time);
  const std::int64_t blocks = (time + block - 1) / block;
  const auto cut = [&](const at::Tensor& x) {
    const std::int64_t lacking = blocks * block - time;
    const at::Tensor whole = lacking > 0 ? at::constant_pad_nd(x, {0, 0, 0, 0, 0, lacking}) : x;
    return whole.reshape({batch * blocks, block, x.size(2), x.size(3)});
  };
  return library_attention(cut(q), cut(k), cut(v), /*causal=*/true, options.scale, nullptr)
      .reshape({batch, blocks * block, q.size(2), v.size(3)})
      .narrow(1, 0, time);
}

// Of operands that are encoded already. `tokens`: null, or of which they were gathered.
at::Tensor by_tensors(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                      const BlockAttentionOptions& options, const RowsOfTokens* tokens) {
  if (options.block == 0 && fused_attention_serves(q, v, options)) {
    return library_attention(q, k, v, options.visibility.causal, options.scale, tokens);
  }
  return BlockAttention::apply(
      q, k, v, TensorOptions{options, tokens != nullptr ? std::optional(*tokens) : std::nullopt});
}

// Of gathered tokens, each row of which is one block. In a causal one nothing sees what is behind
// its last token, so that a kernel serves.
at::Tensor of_block_rows(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                         const BlockAttentionOptions& given, const RowsOfTokens& tokens) {
  BlockAttentionOptions options = given;
  options.encoding = {};
  options.visibility = {.causal = given.visibility.causal, .padding = {}, .segments = {}};
  options.block = tokens.length;
  if (options.dropout == 0 && kernel_fits(q, v, options)) {
    return EncodedBlockAttention::apply(q, k, v, std::nullopt, options);
  }
  options.block = 0;
  return by_tensors(q, k, v, options, &tokens);
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

enum class Way : std::uint8_t {
  encoding_kernel,  // a kernel of ours, which encodes on the fly
  gathered_rows,    // of tokens that see one another, each by a way of its own
  // Of operands that are encoded before:
  library,  // the library's fused attention, in blocks
  kernel,   // a kernel of ours
  tensors,
};

Way choose(const at::Tensor& q, const at::Tensor& v, const BlockAttentionOptions& options) {
  const bool library =
      options.block > 0 && options.visibility.plain() && fused_attention_serves(q, v, options);
  if (library && prefers_fused_attention(q)) {
    return Way::library;
  }
  if (kernel_fits(q, v, options)) {
    return Way::encoding_kernel;
  }
  if (!options.visibility.whole_rows()) {
    return Way::gathered_rows;
  }
  BlockAttentionOptions encoded = options;
  encoded.encoding = {};
  if (kernel_fits(q, v, encoded)) {
    return Way::kernel;
  }
  const bool replaces = q.is_cuda() && operator_choices().fused_attention != Use::never;
  return library && replaces ? Way::library : Way::tensors;
}

}  // namespace

at::Tensor block_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const BlockAttentionOptions& options) {
  const Way way = choose(q, v, options);
  if (way == Way::encoding_kernel) {
    return EncodedBlockAttention::apply(q, k, v, theta_of(options.encoding), options);
  }
  if (way == Way::gathered_rows) {
    const Groups groups(options.visibility, q.size(0), q.size(1), options.block, q.device());
    return by_groups(groups, q, k, v, options.encoding,
                     [&](const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                         const RowsOfTokens& tokens) {
                       return of_block_rows(query, key, value, options, tokens);
                     });
  }
  const at::Tensor query = encode(q, options.encoding);
  const at::Tensor key = encode(k, options.encoding);
  BlockAttentionOptions encoded = options;
  encoded.encoding = {};
  if (way == Way::library) {
    return fused_blocks(query, key, v, encoded);
  }
  if (way == Way::kernel) {
    return EncodedBlockAttention::apply(query, key, v, std::nullopt, encoded);
  }
  return by_tensors(query, key, v, encoded, nullptr);
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
