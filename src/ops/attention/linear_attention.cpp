#include "ops/attention/linear_attention.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "ops/attention/attention_operands.h"
#include "ops/attention/groups.h"
#include "ops/attention/linear_attention_tensor.h"
#include "ops/attention/logarithms.h"
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
  Shared(const LinearAttentionOptions& options, std::int64_t time)
      : feature(feature_of(options.encoding)),
        lrpe(table_of(options.encoding, time)),
        sequence(options.sequence),
        floor(options.floor),
        logarithms(options.logarithms),
        decay(options.decay.defined() ? options.decay.contiguous() : options.decay) {}
  kernels::Feature feature;
  LrpeTable lrpe;
  const dist::Group* sequence;  // null: the sequences are whole
  std::optional<double> floor;
  bool logarithms;
  at::Tensor decay;
};

// The chunks of logarithms, where they are such; a GPU's kernels have theirs.
std::optional<LogarithmChunks> chunks_of(const AttentionOperands& x, const Shared& shared,
                                         const at::Tensor& maxima = {}) {
  return shared.logarithms && x.k.is_cpu()
             ? std::optional<LogarithmChunks>(std::in_place, x.k, maxima)
             : std::nullopt;
}

kernels::LinearAttention shape_of(const AttentionOperands& x, const Shared& shared,
                                  const std::optional<LogarithmChunks>& chunks = {}) {
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
          .lrpe = shared.lrpe.view(),
          .decay = shared.decay.defined() ? shared.decay.const_data_ptr<float>() : nullptr,
          .divides = shared.floor.has_value(),
          .floor = shared.logarithms ? 0.F : static_cast<float>(shared.floor.value_or(0)),
          .divisors = nullptr,
          .key_sums = nullptr,
          .output = {},
          .exponential = shared.logarithms,
          .logarithms = chunks ? chunks->view() : kernels::Logarithms{}};
}

bool kernel_fits(const at::Tensor& q, const at::Tensor& v, const LinearAttentionOptions& options) {
  const bool serve = kernel_serves(q, &kernels::Kernels::linear_attention) &&
                     kernel_serves(q, &kernels::Kernels::linear_attention_backward);
  if (!serve || !encoding_fits(q, options.encoding) ||
      (options.logarithms && options.encoding.theta.defined())) {
    return false;
  }
  if (q.is_cpu()) {
    return true;
  }
  kernels::LinearAttention shape{};
  shape.key_dim = q.size(3);
  shape.value_dim = v.size(3);
  shape.divides = options.floor.has_value();
  const float decay = 1;
  shape.decay = options.decay.defined() ? &decay : nullptr;
  shape.exponential = options.logarithms;
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

// `keys`: the sum of the keys that stands beside the state, or undefined. `divisors`: where they
// are put, or undefined.
at::Tensor kernel_forward(const AttentionOperands& x, const at::Tensor& state,
                          kernels::LinearAttention shape, const at::Tensor& keys = {},
                          const at::Tensor& divisors = {}) {
  const bool half = x.q.scalar_type() == at::kHalf;
  const at::Tensor y =
      at::empty(x.v.sizes(), x.v.options().dtype(half ? at::kFloat : x.q.scalar_type()));
  const at::Tensor sums = state.defined() ? state.contiguous() : state;
  auto* sum = state.defined() ? sums.mutable_data_ptr<float>() : nullptr;
  shape.key_sums = keys.defined() ? keys.mutable_data_ptr<float>() : nullptr;
  shape.divisors = divisors.defined() ? divisors.mutable_data_ptr<float>() : nullptr;
  for_heads(x.q, shape, [&](const kernels::Kernels& set, const kernels::LinearAttention& part) {
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
  shape.divides = false;
  const at::Tensor sum = at::zeros({a.size(0), shape.heads, shape.key_dim, shape.value_dim},
                                   a.options().dtype(at::kFloat));
  for_heads(a, shape, [&](const kernels::Kernels& set, const kernels::LinearAttention& part) {
    set.linear_attention(part, {}, in(a), in(b), {}, sum.mutable_data_ptr<float>());
  });
  return sum;
}

// One time on a CPU.
at::Tensor step_forward(const AttentionOperands& x, const at::Tensor& state, const at::Tensor& keys,
                        const Shared& shared) {
  const at::Tensor y = at::empty(x.v.sizes(), x.v.options());
  kernels::LinearAttention shape = shape_of(x, shared);
  shape.key_sums = keys.defined() ? keys.mutable_data_ptr<float>() : nullptr;
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

// What a sum is multiplied with on its way past a rank's tokens, [heads, 1, 1]; or undefined.
at::Tensor past_tokens(const at::Tensor& decay, std::int64_t time) {
  return decay.defined()
             ? powers(decay, at::full({1}, time, decay.options().dtype(at::kLong))).view({-1, 1, 1})
             : decay;
}

// The gradient of the output as it counts in the sums before the first token.
at::Tensor faded_to_start(const at::Tensor& gradient, const at::Tensor& decay) {
  if (!decay.defined()) {
    return gradient;
  }
  const at::Tensor steps = at::arange(1, gradient.size(1) + 1, decay.options().dtype(at::kLong));
  const at::Tensor factors = powers(decay, steps).view({decay.size(0), -1}).t().unsqueeze(-1);
  return (gradient * factors).to(gradient.scalar_type()).contiguous();
}

const float* data_of(const at::Tensor& sum) {
  return sum.defined() ? sum.const_data_ptr<float>() : nullptr;
}

// What the kernel's backward pass finds: q, k, v, the sum before them (undefined unless sequences
// are shared), output and divisors (undefined unless divided).
enum Kept : std::size_t { kQueries, kKeys, kValues, kBefore, kOutput, kDivisors };

// By a kernel, which encodes on the fly.
struct EncodedLinearAttention : torch::autograd::Function<EncodedLinearAttention> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v, const std::optional<at::Tensor>& /*theta*/,
                            const LinearAttentionOptions& options) {
    const auto& shared = carry(context, Shared(options, q.size(1)));
    const AttentionOperands x(q, k, v);
    const std::optional<LogarithmChunks> chunks = chunks_of(x, shared);
    const kernels::LinearAttention shape = shape_of(x, shared, chunks);
    at::Tensor before;
    if (shared.sequence != nullptr) {
      before = sums_of_ranks_before(*shared.sequence,
                                    kernel_sum(shape, x.k, shape.strides.k, x.v, shape.strides.v),
                                    past_tokens(shared.decay, q.size(1)));
    }
    const at::Tensor divisors =
        shape.divides ? at::empty({q.size(0), q.size(1), q.size(2)}, q.options().dtype(at::kFloat))
                      : at::Tensor();
    const at::Tensor y = kernel_forward(x, start_from(before), shape, {}, divisors);
    context->save_for_backward({q, k, v, before, shape.divides ? y : at::Tensor(), divisors});
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const auto& shared = carried<Shared>(context);
    const AttentionOperands x(saved[kQueries], saved[kKeys], saved[kValues]);
    const std::optional<LogarithmChunks> chunks = chunks_of(x, shared);
    // A GPU's kernel takes the single precision that it gave for half.
    const at::Tensor gradient =
        x.q.is_cpu() ? dense_like(gradients[0], x.q) : gradients[0].contiguous();
    const AttentionOperands d = unfilled_gradients(x);
    const ThetaGradient d_theta(x.q, !shared.lrpe.empty());
    kernels::LinearAttention shape = shape_of(x, shared, chunks);
    shape.gradient_strides = d.strides();
    if (shape.divides) {
      shape.output = in(saved[kOutput]);
      shape.divisors = saved[kDivisors].mutable_data_ptr<float>();
    }
    const at::Tensor& before = saved[kBefore];
    at::Tensor behind;
    if (shared.sequence != nullptr) {
      kernels::LinearAttention unfaded = shape;
      unfaded.decay = nullptr;
      behind = sums_of_ranks_behind(
          *shared.sequence,
          kernel_sum(unfaded, x.q, shape.strides.q, faded_to_start(gradient, shared.decay), 0),
          past_tokens(shared.decay, x.q.size(1)));
    }
    for_heads(x.q, shape, [&](const kernels::Kernels& set, const kernels::LinearAttention& part) {
      set.linear_attention_backward(part, in(x.q), in(x.k), in(x.v), in(gradient), out(d.q),
                                    out(d.k), out(d.v), d_theta.data(),
                                    {data_of(before), data_of(behind)});
    });
    return {d.q,
            d.k.to(saved[kKeys].scalar_type()),
            d.v.to(saved[kValues].scalar_type()),
            d_theta.sum(),
            {}};
  }
};

// By tensor operations, of operands that are encoded already; without division.
struct LinearAttention : torch::autograd::Function<LinearAttention> {
  struct Carried {
    const dist::Group* sequence;
    at::Tensor decay;
  };

  static at::Tensor forward(AutogradContext* context, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v, const LinearAttentionOptions& options) {
    const auto& [sequence, decay] = carry(context, Carried{options.sequence, options.decay});
    at::Tensor before;
    if (sequence != nullptr) {
      at::Tensor own =
          at::zeros({q.size(0), q.size(2), q.size(3), v.size(3)}, q.options().dtype(at::kFloat));
      static_cast<void>(chunked_forward(q, k, v, own, decay));
      before = sums_of_ranks_before(*sequence, own, past_tokens(decay, q.size(1)));
    }
    context->save_for_backward({q, k, v, before});
    return chunked_forward(q, k, v, start_from(before), decay);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const auto& [sequence, decay] = carried<Carried>(context);
    SumsAround around{.before = saved[kBefore]};
    if (sequence != nullptr) {
      around.behind = sums_of_ranks_behind(
          *sequence, sum_of_times(saved[kQueries], faded_to_start(gradients[0], decay)),
          past_tokens(decay, saved[kQueries].size(1)));
    }
    LinearAttentionGradients d = chunked_backward(saved[kQueries], saved[kKeys], saved[kValues],
                                                  gradients[0], around, decay);
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

// Of whole rows, encoded already, without division. Values behind a row's last token must be zero:
// what keys stand there does not matter then.
at::Tensor undivided(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const LinearAttentionOptions& options) {
  const at::Tensor& decay = options.decay;
  const LinearAttentionOptions plain{.sequence = options.sequence, .decay = decay};
  const auto causal = [&](const at::Tensor& query, const at::Tensor& key, const at::Tensor& value) {
    return kernel_fits(query, value, plain)
               ? EncodedLinearAttention::apply(query, key, value, std::nullopt, plain)
               : LinearAttention::apply(query, key, value, plain);
  };
  if (options.visibility.causal) {
    return causal(q, k, v);
  }
  if (!decay.defined()) {
    return BidirectionalLinearAttention::apply(q, k, v);
  }
  // From the front and from the back, less each token itself, which both count.
  const at::Tensor back = causal(q.flip(1), k.flip(1), v.flip(1)).flip(1);
  const at::Tensor own = (q.to(at::kFloat) * k.to(at::kFloat)).sum(-1, true) * v;
  return (causal(q, k, v) + back - own)
      .to(q.scalar_type() == at::kHalf ? at::kFloat : q.scalar_type());
}

// The same divided: by the sum of the features' weights, which are like those of a value of 1 where
// queries and keys have no LRPE. `real`: bool [batch, time] or undefined.
at::Tensor divided(const at::Tensor& q, const at::Tensor& k, const at::Tensor& query_features,
                   const at::Tensor& key_features, const at::Tensor& v, const at::Tensor& real,
                   const LinearAttentionOptions& options, double floor) {
  const bool wide = q.scalar_type() == at::kDouble;
  const auto widened = [&](const at::Tensor& x) { return wide ? x : x.to(at::kFloat); };
  at::Tensor ones = at::ones({v.size(0), v.size(1), v.size(2), 1}, widened(v).options());
  if (real.defined()) {
    ones = ones * real.view({v.size(0), v.size(1), 1, 1}).to(ones.scalar_type());
  }
  const std::int64_t width = v.size(3);
  at::Tensor sums;
  at::Tensor weights;
  if (q.is_same(query_features)) {
    const at::Tensor both =
        undivided(widened(q), widened(k), at::cat({widened(v), ones}, -1), options);
    sums = both.narrow(-1, 0, width);
    weights = both.narrow(-1, width, 1);
  } else {
    sums = undivided(widened(q), widened(k), widened(v), options);
    weights = undivided(widened(query_features), widened(key_features), ones, options);
  }
  return (sums / weights.clamp_min(floor))
      .to(v.scalar_type() == at::kHalf ? at::kFloat : v.scalar_type());
}

// The features of logarithms before LRPE, in double and in a unit of its own for each query, which
// the division loses; and with LRPE.
struct WideFeatures {
  at::Tensor features;
  at::Tensor encoded;
};

WideFeatures wide_features(const at::Tensor& x, const Encoding& encoding, bool is_query) {
  const at::Tensor wide = x.to(at::kDouble);
  const at::Tensor features = (is_query ? wide - wide.detach().amax(-1, true) : wide).exp();
  return {.features = features, .encoded = encode(features, encoding)};
}

// Where the kernel does not serve as it is.
at::Tensor by_tensors(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                      const LinearAttentionOptions& options) {
  using Tensors = std::vector<at::Tensor>;
  const Visibility& visibility = options.visibility;
  const bool has_lrpe = options.encoding.theta.defined();
  const at::ScalarType type = v.scalar_type() == at::kHalf ? at::kFloat : v.scalar_type();
  if (options.logarithms && !has_lrpe) {
    return by_rows(visibility, {q, k, v},
                   [&](const Tensors& x, const at::Tensor& lengths) {
                     return exponential_attention(x[0], x[1], x[2], visibility.causal,
                                                  options.floor.has_value(), lengths);
                   })
        .to(type);
  }
  if (!options.floor) {
    return by_rows(
        visibility, {q, k, v},
        [&](const Tensors& x, const at::Tensor&) { return undivided(x[0], x[1], x[2], options); },
        options.encoding,
        [](const Tensors& x, const Encoding& encoding) {
          return Tensors{encode(x[0], encoding), encode(x[1], encoding), x[2]};
        });
  }
  // q, k, v, and with LRPE the features without it.
  const auto features_of = [&](const Tensors& x, const Encoding& encoding) {
    if (options.logarithms) {
      const WideFeatures query = wide_features(x[0], encoding, true);
      const WideFeatures key = wide_features(x[1], encoding, false);
      return Tensors{query.encoded, key.encoded, x[2].to(at::kDouble), query.features,
                     key.features};
    }
    const Tensors features{encode(x[0], {.feature = encoding.feature}),
                           encode(x[1], {.feature = encoding.feature})};
    if (!has_lrpe) {
      return Tensors{features[0], features[1], x[2]};
    }
    Encoding lrpe = encoding;
    lrpe.feature.reset();
    return Tensors{encode(features[0], lrpe), encode(features[1], lrpe), x[2], features[0],
                   features[1]};
  };
  const double floor = options.logarithms ? 0 : *options.floor;
  return by_rows(
             visibility, {q, k, v},
             [&](const Tensors& x, const at::Tensor& lengths) {
               return divided(x[0], x[1], x[has_lrpe ? 3 : 0], x[has_lrpe ? 4 : 1], x[2],
                              is_token(lengths, x[0].size(1)), options, floor);
             },
             options.encoding, features_of)
      .to(type);
}

}  // namespace

at::Tensor linear_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const LinearAttentionOptions& given) {
  LinearAttentionOptions options = given;
  if (options.sequence != nullptr && options.sequence->size() == 1) {
    options.sequence = nullptr;
  }
  TORCH_CHECK(
      options.sequence == nullptr || options.visibility.plain(),
      "linear attention: sequences on several ranks are causal, without padding and segments");
  TORCH_CHECK(options.sequence == nullptr || (!options.floor && !options.logarithms),
              "linear attention: sequences on several ranks are not divided");
  TORCH_CHECK(!options.decay.defined() || (!options.floor && !options.logarithms),
              "linear attention: decay is for sums that are not divided");
  TORCH_CHECK(!options.logarithms || !options.encoding.feature,
              "linear attention: logarithms have no feature map");
  if (!options.logarithms || options.encoding.theta.defined()) {
    return options.visibility.plain() && kernel_fits(q, v, options)
               ? EncodedLinearAttention::apply(q, k, v, theta_of(options.encoding), options)
               : by_tensors(q, k, v, options);
  }
  // What differs by an exponent's last bits differs in all bits of its power.
  const at::Tensor query = q.to(at::kFloat);
  const at::Tensor key = k.to(at::kFloat);
  const at::Tensor y = options.visibility.plain() && kernel_fits(query, v, options)
                           ? EncodedLinearAttention::apply(query, key, v, std::nullopt, options)
                           : by_tensors(query, key, v, options);
  return y.to(v.scalar_type() == at::kHalf ? at::kFloat : v.scalar_type());
}

LinearAttentionSums::LinearAttentionSums(std::int64_t batch, std::int64_t heads,
                                         std::int64_t key_dim, std::int64_t value_dim,
                                         const LinearAttentionOptions& options, at::Device device) {
  const bool wide = options.logarithms && options.encoding.theta.defined();
  const auto how = at::device(device).dtype(wide ? at::kDouble : at::kFloat);
  values = at::zeros({batch, heads, key_dim, value_dim}, how);
  if (options.floor) {
    keys = at::zeros({batch, heads, key_dim}, how);
  }
  if (options.logarithms && !wide) {
    maxima = at::full({batch, heads, key_dim}, std::numeric_limits<float>::lowest(), how);
  }
}

std::int64_t LinearAttentionSums::bytes() const {
  std::size_t bytes = values.nbytes();
  for (const at::Tensor& beside : {keys, maxima}) {
    bytes += beside.defined() ? beside.nbytes() : 0;
  }
  return static_cast<std::int64_t>(bytes);
}

namespace {

// Into the units of larger maxima.
void take_units(LinearAttentionSums& sums, const at::Tensor& maxima) {
  const at::Tensor factors = (sums.maxima - maxima).exp();
  sums.values.mul_(factors.unsqueeze(-1));
  if (sums.keys.defined()) {
    sums.keys.mul_(factors);
  }
  sums.maxima = maxima;
}

// Of features; divided by their weights with the sum of the keys.
at::Tensor step_by_tensors(const at::Tensor& q, const at::Tensor& k,
                           const at::Tensor& query_features, const at::Tensor& key_features,
                           const at::Tensor& v, LinearAttentionSums& sums,
                           const LinearAttentionOptions& options, double floor) {
  at::Tensor y = chunked_forward(q, k, v.to(q.scalar_type()), sums.values, options.decay);
  if (!options.floor) {
    return y;
  }
  at::Tensor keys = sums.keys.unsqueeze(-1).clone();
  const at::Tensor ones = at::ones({v.size(0), v.size(1), v.size(2), 1}, query_features.options());
  const at::Tensor weights = chunked_forward(query_features, key_features, ones, keys);
  sums.keys.copy_(keys.squeeze(-1));
  return y / weights.clamp_min(floor);
}

at::Tensor step_of_logarithms(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              LinearAttentionSums& sums, const LinearAttentionOptions& options) {
  if (options.encoding.theta.defined()) {
    const WideFeatures query = wide_features(q, options.encoding, true);
    const WideFeatures key = wide_features(k, options.encoding, false);
    return step_by_tensors(query.encoded, key.encoded, query.features, key.features, v, sums,
                           options, 0);
  }
  const at::Tensor query = q.to(at::kFloat);
  const at::Tensor key = k.to(at::kFloat);
  if (query.is_cpu() && kernel_fits(query, v, options)) {
    const AttentionOperands x(query, key, v);
    const Shared shared(options, q.size(1));
    const std::optional<LogarithmChunks> chunks = chunks_of(x, shared, sums.maxima);
    take_units(sums, chunks->first_references());
    const at::Tensor y = kernel_forward(x, sums.values, shape_of(x, shared, chunks), sums.keys);
    sums.maxima = chunks->maxima();
    return y;
  }
  // One token after the other, each in units of the maxima up to it.
  std::vector<at::Tensor> parts;
  for (std::int64_t t = 0; t < q.size(1); ++t) {
    const at::Tensor own = key.select(1, t);
    take_units(sums, at::maximum(sums.maxima, own));
    at::Tensor scores = query.select(1, t) + sums.maxima;
    if (options.floor) {
      scores = scores - scores.amax(-1, true);
    }
    const at::Tensor feature = (own - sums.maxima).exp();
    sums.values.add_(feature.unsqueeze(-1) * v.select(1, t).to(at::kFloat).unsqueeze(-2));
    at::Tensor y = at::matmul(scores.exp().unsqueeze(-2), sums.values).squeeze(-2);
    if (options.floor) {
      sums.keys.add_(feature);
      y = y / (scores.exp() * sums.keys).sum(-1, true);
    }
    parts.push_back(y);
  }
  return at::stack(parts, 1);
}

}  // namespace

at::Tensor linear_attention_step(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                 LinearAttentionSums& sums, const LinearAttentionOptions& options) {
  const at::NoGradGuard no_gradients;
  const at::ScalarType type = q.scalar_type() == at::kHalf ? at::kFloat : q.scalar_type();
  if (options.logarithms) {
    return step_of_logarithms(q, k, v, sums, options)
        .to(v.scalar_type() == at::kHalf ? at::kFloat : v.scalar_type());
  }
  if (!kernel_fits(q, v, options)) {
    Encoding feature_only;
    feature_only.feature = options.encoding.feature;
    return step_by_tensors(encode(q, options.encoding), encode(k, options.encoding),
                           encode(q, feature_only), encode(k, feature_only), v, sums, options,
                           options.floor.value_or(0))
        .to(type);
  }
  const Shared shared(options, q.size(1));
  const AttentionOperands x(q, k, v);
  if (q.is_cpu() && q.size(1) == 1 && sums.values.is_contiguous() &&
      kernel_serves(q, &kernels::Kernels::step)) {
    return step_forward(x, sums.values, sums.keys, shared);
  }
  return kernel_forward(x, sums.values, shape_of(x, shared), sums.keys);
}

}  // namespace transnormer::ops
