#include "ops/operator_cases.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "ops/activation.h"
#include "ops/attention/block_attention.h"
#include "ops/attention/encoding.h"
#include "ops/attention/joint.h"
#include "ops/attention/linear_attention.h"
#include "ops/attention/lrpe.h"
#include "ops/dropout.h"
#include "ops/loss/linear_cross_entropy.h"
#include "ops/norm.h"
#include "ops/reference.h"
#include "ops/residual.h"
#include "ops/trust/mirrored_group.h"
#include "ops/weights/embedding.h"
#include "ops/weights/linear.h"

namespace transnormer::ops {
namespace {

constexpr double kEps = 1e-6;
const DropoutKey kKey{0x123456789ABCDEF, 1LL << 33, 5, 2, (1LL << 32) - 2, 6};

using Cases = std::vector<OperatorCase>;

// [batch, time, heads, dim]
at::Tensor heads_of(std::int64_t time, std::int64_t dim, std::uint64_t seed) {
  return normal({3, time, 2, dim}, seed);
}

at::Tensor mask_like(const at::Tensor& x, double p) {
  return dropout_mask(x.size(0), x.numel() / x.size(0), p, kKey, at::kCPU)
      .view(x.sizes())
      .to(at::kDouble);
}

at::Tensor phi(const at::Tensor& x, FeatureMap map) {
  switch (map) {
    case FeatureMap::elu1:
      return at::elu(x) + 1;
    case FeatureMap::elu:
      return at::elu(x);
    case FeatureMap::relu:
      return at::relu(x);
    case FeatureMap::silu:
      return at::silu(x);
    case FeatureMap::exp:
      return x.exp();
  }
  return {};
}

at::Tensor srms(const at::Tensor& x) {
  return x * (x.square().mean(-1, true) + kEps).rsqrt();
}

at::Tensor rotated(const at::Tensor& x, const at::Tensor& theta, const at::Tensor& unit,
                   std::int64_t first, std::int64_t period) {
  at::Tensor position = at::arange(first, first + x.size(1), at::kLong);
  if (period > 0) {
    position = position.remainder(period);
  }
  const at::Tensor angle = position.to(at::kDouble).view({-1, 1, 1}) * theta;
  const at::Tensor z = x - 2 * (x * unit).sum(-1, true) * unit;
  const at::Tensor pairs = z.unflatten(-1, {-1, 2});
  const at::Tensor even = pairs.select(-1, 0), odd = pairs.select(-1, 1);
  return at::stack({even * angle.cos() - odd * angle.sin(), even * angle.sin() + odd * angle.cos()},
                   -1)
      .flatten(-2);
}

// The queries', keys' and values' products with one another, [batch, heads, time, ..].
at::Tensor by_head(const at::Tensor& x) {
  return x.transpose(1, 2);
}

at::Tensor products_with_past(const at::Tensor& q, const at::Tensor& k) {
  return at::matmul(by_head(q), by_head(k).transpose(2, 3)).tril();
}

// decay: [heads] in double, or undefined.
at::Tensor quadratic_linear_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                      const at::Tensor& decay = {}) {
  at::Tensor scores = products_with_past(q, k);
  if (decay.defined()) {
    const at::Tensor time = at::arange(q.size(1), at::kDouble);
    scores = scores * at::pow(decay.view({-1, 1, 1}), (time.unsqueeze(1) - time).clamp_min(0));
  }
  return by_head(at::matmul(scores, by_head(v)));
}

at::Tensor attention_in_blocks(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                               const BlockAttentionOptions& options) {
  const std::int64_t time = q.size(1);
  const std::int64_t block = options.block > 0 ? options.block : time;
  const at::Tensor number = at::arange(time, at::kLong);
  const at::Tensor row = number.unsqueeze(1), column = number.unsqueeze(0);
  const at::Tensor hidden =
      (column > row).logical_or(row.div(block, "floor") != column.div(block, "floor"));
  at::Tensor weights = at::matmul(by_head(q), by_head(k).transpose(2, 3)) * options.scale;
  weights = options.score == ScoreKind::softmax
                ? weights.masked_fill(hidden, -std::numeric_limits<double>::infinity()).softmax(-1)
                : weights.masked_fill(hidden, 0).relu();
  if (options.dropout > 0) {
    // Of a sample: [time, heads, place in the block].
    const at::Tensor mask = by_head(dropout_mask(q.size(0), q.size(2) * time * block,
                                                 options.dropout, options.dropout_key, at::kCPU)
                                        .view({q.size(0), time, q.size(2), block})
                                        .to(at::kDouble));
    weights = weights * mask.index_select(-1, number.remainder(block));
  }
  return by_head(at::matmul(weights, by_head(v)));
}

void add_elementwise(Cases& cases) {
  for (const auto kind : {Activation::silu, Activation::relu, Activation::gelu, Activation::none}) {
    const auto plain = [kind](const at::Tensor& x) {
      switch (kind) {
        case Activation::silu:
          return at::silu(x);
        case Activation::relu:
          return at::relu(x);
        case Activation::gelu:
          return at::gelu(x);
        case Activation::none:
          break;
      }
      return x;
    };
    const std::string name = "activation " + std::to_string(static_cast<int>(kind));
    cases.push_back(
        {name,
         {normal({3, 37, 53}, 1)},
         {},
         [kind](const Tensors& a, const Tensors&, at::ScalarType) { return activate(a[0], kind); },
         [plain](const Tensors& a, const Tensors&) { return plain(a[0]); }});
    cases.push_back(
        {"gated " + name,
         {normal({3, 37, 106}, 1)},
         {},
         [kind](const Tensors& a, const Tensors&, at::ScalarType) { return gated(a[0], kind); },
         [plain](const Tensors& a, const Tensors&) {
           const Tensors parts = a[0].chunk(2, -1);
           return plain(parts[0]) * parts[1];
         }});
  }
  for (const auto map :
       {FeatureMap::elu1, FeatureMap::elu, FeatureMap::relu, FeatureMap::silu, FeatureMap::exp}) {
    cases.push_back(
        {"feature map " + std::to_string(static_cast<int>(map)),
         {normal({3, 37, 53}, 1)},
         {},
         [map](const Tensors& a, const Tensors&, at::ScalarType) { return feature_map(a[0], map); },
         [map](const Tensors& a, const Tensors&) { return phi(a[0], map); }});
  }
  cases.push_back(
      {"dropout",
       {normal({4, 19, 27}, 1)},
       {},
       [](const Tensors& a, const Tensors&, at::ScalarType) { return dropout(a[0], 0.3, kKey); },
       [](const Tensors& a, const Tensors&) { return a[0] * mask_like(a[0], 0.3); }});
}

void add_norms(Cases& cases) {
  const Tensors x{normal({3, 29, 51}, 1)};
  const at::Tensor gain = normal({51}, 2), bias = normal({51}, 3);
  cases.push_back({"srms_norm",
                   x,
                   {},
                   [](const Tensors& a, const Tensors&, at::ScalarType type) {
                     return srms_norm(a[0], kEps, type);
                   },
                   [](const Tensors& a, const Tensors&) { return srms(a[0]); }});
  cases.push_back({"srms_norm of the stream",
                   {},
                   x,
                   [](const Tensors&, const Tensors& p, at::ScalarType type) {
                     return srms_norm(p[0], kEps, type);
                   },
                   [](const Tensors&, const Tensors& p) { return srms(p[0]); }});
  cases.push_back({"rms_norm",
                   x,
                   {gain},
                   [](const Tensors& a, const Tensors& p, at::ScalarType type) {
                     return rms_norm(a[0], p[0], kEps, type);
                   },
                   [](const Tensors& a, const Tensors& p) { return srms(a[0]) * p[0]; }});
  cases.push_back({"layer_norm",
                   x,
                   {gain, bias},
                   [](const Tensors& a, const Tensors& p, at::ScalarType type) {
                     return layer_norm(a[0], p[0], p[1], kEps, type);
                   },
                   [](const Tensors& a, const Tensors& p) {
                     return at::layer_norm(a[0], {51}, p[0], p[1], kEps);
                   }});
}

void add_residuals(Cases& cases) {
  const at::Tensor stream = normal({3, 29, 51}, 1), branch = normal({3, 29, 51}, 2);
  for (const double p : {0.0, 0.3}) {
    const Drop drop{p, kKey};
    const auto sum = [p](const at::Tensor& x, const at::Tensor& y) {
      return x + (p > 0 ? y * mask_like(y, p) : y);
    };
    const std::string with = p > 0 ? " with dropout" : "";
    cases.push_back({"residual" + with,
                     {branch},
                     {stream},
                     [drop](const Tensors& a, const Tensors& q, at::ScalarType) {
                       return residual(q[0], a[0], drop);
                     },
                     [sum](const Tensors& a, const Tensors& q) { return sum(q[0], a[0]); }});
    cases.push_back({"residual and norm" + with,
                     {branch},
                     {stream},
                     [drop](const Tensors& a, const Tensors& q, at::ScalarType type) {
                       const StreamAndNorm made = residual_srms_norm(q[0], a[0], drop, kEps, type);
                       return made.stream + 3 * made.normed.to(at::kFloat);
                     },
                     [sum](const Tensors& a, const Tensors& q) {
                       const at::Tensor made = sum(q[0], a[0]);
                       return made + 3 * srms(made);
                     }});
  }
}

void add_weights(Cases& cases) {
  const at::Tensor x = normal({3, 17, 45}, 1), weight = normal({31, 45}, 2), bias = normal({31}, 3);
  cases.push_back(
      {"linear",
       {x},
       {weight, bias},
       [](const Tensors& a, const Tensors& p, at::ScalarType type) {
         return linear(a[0], p[0], p[1], type);
       },
       [](const Tensors& a, const Tensors& p) { return at::linear(a[0], p[0], p[1]); }});
  cases.push_back({"linear without bias",
                   {x},
                   {weight},
                   [](const Tensors& a, const Tensors& p, at::ScalarType type) {
                     return linear(a[0], p[0], at::Tensor(), type);
                   },
                   [](const Tensors& a, const Tensors& p) { return at::linear(a[0], p[0]); }});
  const at::Tensor tokens = at::arange(60, at::kLong).view({3, 20}) * 7 % 31;
  cases.push_back(
      {"embedding",
       {},
       {weight},
       [tokens](const Tensors&, const Tensors& p, at::ScalarType) {
         return scaled_embedding(p[0], tokens.to(p[0].device()), 1.5);
       },
       [tokens](const Tensors&, const Tensors& p) { return at::embedding(p[0], tokens) * 1.5; }});
}

at::Tensor some_theta() {
  return at::pow(10000.0, at::arange(12, at::kDouble) * (-2.0 / 24)).to(at::kFloat);
}
at::Tensor some_unit() {
  const at::Tensor direction = normal({24}, 5);
  return direction / direction.norm();
}

void add_lrpe(Cases& cases) {
  for (const auto& [first, period] : {std::pair{0, 0}, std::pair{3, 8}, std::pair{100000, 0}}) {
    cases.push_back(
        {"lrpe from " + std::to_string(first) + ", period " + std::to_string(period),
         {heads_of(37, 24, 1)},
         {some_theta()},
         [first = first, period = period](const Tensors& a, const Tensors& p, at::ScalarType) {
           return lrpe(a[0], p[0], some_unit().to(p[0].device()), first, period);
         },
         [first = first, period = period](const Tensors& a, const Tensors& p) {
           return rotated(a[0], p[0], some_unit().to(at::kDouble), first, period);
         }});
  }
}

// That of the middle one of three parts that are alike; the last one has its gradient of the
// output, which reaches keys and values before it.
at::Tensor middle_part_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                 const at::Tensor& decay = {}) {
  const auto whole = [](const at::Tensor& x) { return at::cat({x.detach(), x, x.detach()}, 1); };
  const Tensors out = quadratic_linear_attention(whole(q), whole(k), whole(v), decay).chunk(3, 1);
  return out[1] + out[2] - out[2].detach();
}

void add_linear_attention(Cases& cases) {
  for (const auto& [time, value_dim] : {std::pair{1, 17}, std::pair{63, 17}, std::pair{64, 24},
                                        std::pair{65, 70}, std::pair{200, 17}}) {
    const Tensors heads{heads_of(time, 24, 1), heads_of(time, 24, 2), heads_of(time, value_dim, 3)};
    cases.push_back({"linear attention over " + std::to_string(time),
                     heads,
                     {},
                     [](const Tensors& a, const Tensors&, at::ScalarType) {
                       return linear_attention(a[0], a[1], a[2]);
                     },
                     [](const Tensors& a, const Tensors&) {
                       return quadratic_linear_attention(a[0], a[1], a[2]);
                     }});
    cases.push_back(
        {"linear attention with ranks before and behind, over " + std::to_string(time),
         heads,
         {},
         [](const Tensors& a, const Tensors&, at::ScalarType) {
           static const dist::Group group = mirrored_group();
           return linear_attention(a[0], a[1], a[2], {.sequence = &group});
         },
         [](const Tensors& a, const Tensors&) { return middle_part_attention(a[0], a[1], a[2]); }});
  }
}

void add_fading_linear_attention(Cases& cases) {
  const at::Tensor decay = at::tensor({0.8F, 0.99F});
  for (const auto& [time, value_dim] :
       {std::pair{1, 17}, std::pair{64, 24}, std::pair{65, 70}, std::pair{200, 17}}) {
    const Tensors heads{heads_of(time, 24, 1), heads_of(time, 24, 2), heads_of(time, value_dim, 3)};
    cases.push_back({"linear attention with decay over " + std::to_string(time),
                     heads,
                     {},
                     [decay](const Tensors& a, const Tensors&, at::ScalarType) {
                       return linear_attention(a[0], a[1], a[2],
                                               {.decay = decay.to(a[0].device())});
                     },
                     [decay](const Tensors& a, const Tensors&) {
                       return quadratic_linear_attention(a[0], a[1], a[2], decay.to(at::kDouble));
                     }});
    cases.push_back(
        {"linear attention with decay, ranks before and behind, over " + std::to_string(time),
         heads,
         {},
         [decay](const Tensors& a, const Tensors&, at::ScalarType) {
           static const dist::Group group = mirrored_group();
           return linear_attention(a[0], a[1], a[2],
                                   {.sequence = &group, .decay = decay.to(a[0].device())});
         },
         [decay](const Tensors& a, const Tensors&) {
           return middle_part_attention(a[0], a[1], a[2], decay.to(at::kDouble));
         }});
  }
}

// With LRPE, which is in the numerator only, and without.
void add_divided_linear_attention(Cases& cases) {
  constexpr double kFloor = 50;  // of some tokens at the start
  for (const std::int64_t time : {1, 65, 200}) {
    for (const bool has_lrpe : {false, true}) {
      cases.push_back(
          {"divided linear attention over " + std::to_string(time) + (has_lrpe ? ", LRPE" : ""),
           {heads_of(time, 24, 1), heads_of(time, 24, 2), heads_of(time, 17, 3)},
           has_lrpe ? Tensors{some_theta()} : Tensors{},
           [=](const Tensors& a, const Tensors& p, at::ScalarType) {
             LinearAttentionOptions options{.encoding = {.feature = FeatureMap::elu1},
                                            .floor = kFloor};
             if (has_lrpe) {
               options.encoding.theta = p[0];
               options.encoding.reflect = some_unit().to(p[0].device());
             }
             return linear_attention(a[0], a[1], a[2], options);
           },
           [=](const Tensors& a, const Tensors& p) {
             const at::Tensor q = phi(a[0], FeatureMap::elu1), k = phi(a[1], FeatureMap::elu1);
             const auto encoded = [&](const at::Tensor& x) {
               return has_lrpe ? rotated(x, p[0], some_unit().to(at::kDouble), 0, 0) : x;
             };
             const at::Tensor weights = products_with_past(q, k).sum(-1, true).clamp_min(kFloor);
             return quadratic_linear_attention(encoded(q), encoded(k), a[2]) / by_head(weights);
           }});
    }
  }
}

// Far apart, so that weights that were formed by themselves would be infinite and zero.
void add_attention_of_logarithms(Cases& cases) {
  for (const std::int64_t time : {1, 65, 200}) {
    for (const bool divides : {false, true}) {
      const double size = divides ? 20 : 1;
      cases.push_back(
          {std::string(divides ? "divided" : "undivided") + " attention of logarithms over " +
               std::to_string(time),
           {size * heads_of(time, 24, 1), size * heads_of(time, 24, 2), heads_of(time, 17, 3)},
           {},
           [=](const Tensors& a, const Tensors&, at::ScalarType) {
             LinearAttentionOptions options{.logarithms = true};
             if (divides) {
               options.floor = 0;
             }
             return linear_attention(a[0], a[1], a[2], options);
           },
           [=](const Tensors& a, const Tensors&) {
             const at::Tensor q = a[0].exp(), k = a[1].exp();
             const at::Tensor sums = quadratic_linear_attention(q, k, a[2]);
             return divides ? sums / by_head(products_with_past(q, k).sum(-1, true)) : sums;
           }});
    }
  }
}

void add_block_attention(Cases& cases) {
  for (const std::int64_t block : {8, 64, 0}) {
    for (const auto score : {ScoreKind::softmax, ScoreKind::relu}) {
      for (const double p : {0.0, 0.3}) {
        for (const std::int64_t time : {1, 7, 100}) {
          BlockAttentionOptions options;
          options.score = score;
          options.block = block;
          options.scale = 0.2;
          options.dropout = p;
          options.dropout_key = kKey;
          cases.push_back({"block " + std::to_string(block) + ", score " +
                               std::to_string(static_cast<int>(score)) + ", dropout " +
                               std::to_string(p) + ", time " + std::to_string(time),
                           {heads_of(time, 24, 1), heads_of(time, 24, 2), heads_of(time, 24, 3)},
                           {},
                           [options](const Tensors& a, const Tensors&, at::ScalarType) {
                             return block_attention(a[0], a[1], a[2], options);
                           },
                           [options](const Tensors& a, const Tensors&) {
                             return attention_in_blocks(a[0], a[1], a[2], options);
                           }});
        }
      }
    }
  }
}

// Parts of one projection, and an encoding of queries and keys on the way.
void add_encoded_attentions(Cases& cases) {
  constexpr std::int64_t kTime = 100, kFirst = 3, kPeriod = 8;
  const auto parts_of = [](const at::Tensor& x, const std::vector<at::Tensor>& parts) {
    Tensors views;
    for (const at::Tensor& part : parts) {
      views.push_back(part.view({x.size(0), x.size(1), 2, 24}));
    }
    return views;
  };
  const auto encoding_of = [](const at::Tensor& theta, std::int64_t period) {
    return Encoding{FeatureMap::elu1, theta, some_unit().to(theta.device()), kFirst, period, {}};
  };
  const auto encoded = [](const at::Tensor& x, const at::Tensor& theta, std::int64_t period) {
    return rotated(phi(x, FeatureMap::elu1), theta, some_unit().to(at::kDouble), kFirst, period);
  };
  const Tensors joint{normal({3, kTime, 3 * 2 * 24}, 1)};
  cases.push_back({"linear attention of encoded parts",
                   joint,
                   {some_theta()},
                   [=](const Tensors& a, const Tensors& p, at::ScalarType) {
                     const Tensors x = parts_of(a[0], ops::split(a[0], 3));
                     return linear_attention(x[0], x[1], x[2], {.encoding = encoding_of(p[0], 0)});
                   },
                   [=](const Tensors& a, const Tensors& p) {
                     const Tensors x = parts_of(a[0], at::chunk(a[0], 3, -1));
                     return quadratic_linear_attention(encoded(x[0], p[0], 0),
                                                       encoded(x[1], p[0], 0), x[2]);
                   }});
  BlockAttentionOptions options;
  options.block = kPeriod;
  options.scale = 0.2;
  cases.push_back({"block attention of encoded parts",
                   joint,
                   {some_theta()},
                   [=](const Tensors& a, const Tensors& p, at::ScalarType) {
                     const Tensors x = parts_of(a[0], ops::split(a[0], 3));
                     BlockAttentionOptions own = options;
                     own.encoding = encoding_of(p[0], kPeriod);
                     return block_attention(x[0], x[1], x[2], own);
                   },
                   [=](const Tensors& a, const Tensors& p) {
                     const Tensors x = parts_of(a[0], at::chunk(a[0], 3, -1));
                     return attention_in_blocks(encoded(x[0], p[0], kPeriod),
                                                encoded(x[1], p[0], kPeriod), x[2], options);
                   }});
}

void add_cross_entropy(Cases& cases) {
  constexpr std::int64_t kTokens = 50, kWords = 1037;
  at::Tensor targets = at::arange(kTokens, at::kLong) * 31 % kWords;
  targets.slice(0, 3, kTokens, 7).fill_(-1);
  const auto losses = [targets](const at::Tensor& hidden, const at::Tensor& weight) {
    const at::Tensor all = -at::mm(hidden, weight.t()).log_softmax(-1);
    return at::where(targets < 0, 0.0, all.gather(1, targets.clamp_min(0).unsqueeze(1)).squeeze(1));
  };
  for (const std::int64_t memory : {1LL, 7LL * kWords * 4, 1LL << 30}) {
    LinearCrossEntropyOptions options;
    options.scale = at::scalar_tensor(0.37, at::kFloat);
    options.memory_bytes = memory;
    cases.push_back(
        {"cross entropy with " + std::to_string(memory) + " bytes",
         {normal({kTokens, 24}, 1)},
         {normal({kWords, 24}, 2)},
         [options, targets](const Tensors& a, const Tensors& p, at::ScalarType type) {
           LinearCrossEntropyOptions own = options;
           own.compute = type;
           own.scale = own.scale.to(a[0].device());
           return linear_cross_entropy(a[0], p[0], targets.to(a[0].device()), own).loss;
         },
         [losses](const Tensors& a, const Tensors& p) { return losses(a[0], p[0]).sum() * 0.37; }});
  }
  cases.push_back(
      {"losses of tokens",
       {normal({kTokens, 24}, 1)},
       {normal({kWords, 24}, 2)},
       [targets](const Tensors& a, const Tensors& p, at::ScalarType type) {
         LinearCrossEntropyOptions options;
         options.compute = type;
         return token_losses(a[0], p[0], targets.to(a[0].device()), options);
       },
       [losses](const Tensors& a, const Tensors& p) { return losses(a[0], p[0]).detach(); }});
}

Tensors leaves(const Tensors& inputs, at::Device device, at::ScalarType type) {
  Tensors result;
  for (const at::Tensor& input : inputs) {
    result.push_back(leaf(input.to(device, type)));
  }
  return result;
}

void expect_near(const at::Tensor& found, const at::Tensor& expected, double tolerance,
                 const std::string& what) {
  constexpr double kLeastScale = 0.1;
  ASSERT_EQ(found.sizes(), expected.sizes()) << what;
  const at::Tensor wanted = expected.detach();
  const double scale = std::max(wanted.abs().max().item<double>(), kLeastScale);
  const double difference =
      (found.detach().to(at::kCPU, at::kDouble) - wanted).abs().max().item<double>();
  EXPECT_LT(difference, tolerance * scale) << what;
}

}  // namespace

Cases operator_cases() {
  Cases cases;
  add_elementwise(cases);
  add_norms(cases);
  add_residuals(cases);
  add_weights(cases);
  add_lrpe(cases);
  add_linear_attention(cases);
  add_fading_linear_attention(cases);
  add_divided_linear_attention(cases);
  add_attention_of_logarithms(cases);
  add_block_attention(cases);
  add_encoded_attentions(cases);
  add_cross_entropy(cases);
  return cases;
}

void expect_like_reference(const OperatorCase& tested, at::Device device, at::ScalarType type,
                           double tolerance) {
  const std::string what = tested.name + " in " + c10::toString(type);
  const Tensors activations = leaves(tested.activations, device, type);
  const Tensors parameters = leaves(tested.parameters, device, at::kFloat);
  Tensors operands = activations, exact_operands;
  operands.insert(operands.end(), parameters.begin(), parameters.end());
  for (const at::Tensor& operand : operands) {
    exact_operands.push_back(leaf(operand.to(at::kCPU, at::kDouble)));
  }
  const auto middle = exact_operands.begin() + static_cast<std::ptrdiff_t>(activations.size());
  const at::Tensor y = tested.apply(activations, parameters, type);
  const at::Tensor expected =
      tested.reference({exact_operands.begin(), middle}, {middle, exact_operands.end()});
  EXPECT_EQ(y.device(), device) << what;
  expect_near(y, expected, tolerance, what + ", result");
  if (!expected.requires_grad()) {
    return;
  }
  // A loss may be differentiated with a gradient of 1 only.
  const at::Tensor weights =
      y.dim() == 0 ? at::ones({}) : normal(y.sizes(), 99).to(y.scalar_type()).to(at::kFloat);
  y.backward(weights.to(y.options().requires_grad(false)));
  expected.backward(weights.to(at::kDouble));
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const at::Tensor& gradient = operands[i].grad();
    ASSERT_TRUE(gradient.defined()) << what << ", gradient " << i;
    EXPECT_EQ(gradient.device(), device) << what;
    EXPECT_EQ(gradient.scalar_type(), operands[i].scalar_type()) << what;
    expect_near(gradient, exact_operands[i].grad(), tolerance,
                what + ", gradient " + std::to_string(i));
  }
}

}  // namespace transnormer::ops
