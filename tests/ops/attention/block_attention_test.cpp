#include "ops/attention/block_attention.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>

#include <algorithm>
#include <string>
#include <vector>

#include "ops/attention/block_attention_tensor.h"
#include "ops/reference.h"
#include "ops/runtime/operator_choices.h"

namespace transnormer::ops {
namespace {

struct Case {
  std::int64_t time;
  std::int64_t dim;
  std::int64_t block;
  ScoreKind score;
  double dropout;
};

constexpr std::int64_t kBatch = 2;
constexpr std::int64_t kHeads = 3;

BlockAttentionOptions options_of(const Case& c) {
  return {.score = c.score,
          .block = c.block,
          .scale = 0.4,
          .dropout = c.dropout,
          .dropout_key = {.seed = 5, .update = 6, .layer = 1, .site = 3, .first_sample = 9}};
}

struct Operands {
  explicit Operands(const Case& c)
      : q(normal({kBatch, c.time, kHeads, c.dim}, 1)),
        k(normal({kBatch, c.time, kHeads, c.dim}, 2)),
        v(normal({kBatch, c.time, kHeads, c.dim}, 3)),
        g(normal({kBatch, c.time, kHeads, c.dim}, 4)) {}
  at::Tensor q, k, v, g;
};

struct Answers {
  std::vector<double> out, d_q, d_k, d_v;
};

// One query at a time: weights over the keys it sees, their gradients by the softmax's own formula.
Answers reference(const Operands& x, const Case& c) {
  const BlockAttentionOptions options = options_of(c);
  const std::vector<double> q = values(x.q), k = values(x.k), v = values(x.v), g = values(x.g);
  const std::int64_t block = c.block > 0 ? c.block : c.time;
  std::vector<double> mask(static_cast<std::size_t>(kBatch * kHeads * c.time * block), 1.0);
  if (c.dropout > 0) {
    mask = values(
        dropout_mask(kBatch, kHeads * c.time * block, c.dropout, options.dropout_key, at::kCPU));
  }
  Answers a{std::vector<double>(q.size()), std::vector<double>(q.size()),
            std::vector<double>(q.size()), std::vector<double>(q.size())};
  const auto width = static_cast<std::size_t>(c.dim);
  for (std::int64_t b = 0; b < kBatch; ++b) {
    for (std::int64_t h = 0; h < kHeads; ++h) {
      for (std::int64_t t = 0; t < c.time; ++t) {
        const std::int64_t first = t / block * block;
        const auto place = [&](std::int64_t at) {
          return static_cast<std::size_t>(((b * c.time + at) * kHeads + h) * c.dim);
        };
        const auto seen = static_cast<std::size_t>(t - first + 1);
        std::vector<double> score(seen), weight(seen), kept(seen), d_weight(seen);
        double total = 0;
        for (std::size_t s = 0; s < seen; ++s) {
          const std::size_t at = place(first + static_cast<std::int64_t>(s));
          for (std::size_t i = 0; i < width; ++i) {
            score[s] += options.scale * q[place(t) + i] * k[at + i];
            d_weight[s] += g[place(t) + i] * v[at + i];
          }
          total += std::exp(score[s]);
          kept[s] = mask[static_cast<std::size_t>(((b * c.time + t) * kHeads + h) * block) + s];
          d_weight[s] *= kept[s];
        }
        double along = 0;
        for (std::size_t s = 0; s < seen; ++s) {
          weight[s] =
              c.score == ScoreKind::softmax ? std::exp(score[s]) / total : std::max(score[s], 0.0);
          along += weight[s] * d_weight[s];
        }
        for (std::size_t s = 0; s < seen; ++s) {
          const std::size_t at = place(first + static_cast<std::int64_t>(s));
          const double d_score = c.score == ScoreKind::softmax ? weight[s] * (d_weight[s] - along)
                                 : score[s] > 0                ? d_weight[s]
                                                               : 0.0;
          for (std::size_t i = 0; i < width; ++i) {
            a.out[place(t) + i] += weight[s] * kept[s] * v[at + i];
            a.d_v[at + i] += weight[s] * kept[s] * g[place(t) + i];
            a.d_q[place(t) + i] += options.scale * d_score * k[at + i];
            a.d_k[at + i] += options.scale * d_score * q[place(t) + i];
          }
        }
      }
    }
  }
  return a;
}

class BlockAttention : public testing::TestWithParam<Case> {};

TEST_P(BlockAttention, AgreesWithLoopsForwardAndBackward) {
  const Operands x(GetParam());
  const Answers expected = reference(x, GetParam());
  const at::Tensor q = leaf(x.q), k = leaf(x.k), v = leaf(x.v);
  const at::Tensor y = block_attention(q, strided(k), v, options_of(GetParam()));
  torch::autograd::backward({y}, {x.g});
  EXPECT_LT(distance(y, expected.out), 2e-6);
  EXPECT_LT(distance(q.grad(), expected.d_q), 3e-6);
  EXPECT_LT(distance(k.grad(), expected.d_k), 3e-6);
  EXPECT_LT(distance(v.grad(), expected.d_v), 3e-6);
}

TEST_P(BlockAttention, InTensorOperationsAgreesToo) {
  const Operands x(GetParam());
  const Answers expected = reference(x, GetParam());
  const BlockAttentionOptions options = options_of(GetParam());
  EXPECT_LT(distance(tiled_forward(x.q, x.k, x.v, options), expected.out), 2e-6);
  const BlockAttentionGradients d = tiled_backward(x.q, x.k, x.v, x.g, options);
  EXPECT_LT(distance(d.q, expected.d_q), 3e-6);
  EXPECT_LT(distance(d.k, expected.d_k), 3e-6);
  EXPECT_LT(distance(d.v, expected.d_v), 3e-6);
}

TEST_P(BlockAttention, StepsOverAGrowingBlockGiveTheSame) {
  const Case& c = GetParam();
  const Operands x(c);
  BlockAttentionOptions options = options_of(c);
  options.dropout = 0;  // decoding has none
  const std::int64_t block = c.block > 0 ? c.block : c.time;
  std::vector<at::Tensor> parts;
  for (std::int64_t t = 0; t < c.time; ++t) {
    const std::int64_t first = t / block * block;
    parts.push_back(attention_step(x.q.narrow(1, t, 1), x.k.slice(1, first, t + 1),
                                   x.v.slice(1, first, t + 1), c.score, options.scale));
  }
  EXPECT_LT(distance(block_attention(x.q, x.k, x.v, options), at::cat(parts, 1)), 2e-6);
}

constexpr auto kSoftmax = ScoreKind::softmax;
constexpr auto kRelu = ScoreKind::relu;
TEST(BlockAttentionDropout, OfAPartOfASampleIsThatOfItsPlaceInTheWhole) {
  constexpr std::int64_t kBegin = 2 * 9;  // of the third block
  const Case c{50, 6, 9, ScoreKind::softmax, 0.3};
  const Operands x(c);
  const auto run = [&](std::int64_t first, at::ScalarType type) {
    const auto part = [&](const at::Tensor& of) { return leaf(of.slice(1, first).to(type)); };
    BlockAttentionOptions options = options_of(c);
    options.dropout_key.first_element = first * kHeads * c.block;
    const at::Tensor k = part(x.k);
    const at::Tensor y = block_attention(part(x.q), k, part(x.v), options);
    torch::autograd::backward({y}, {part(x.g)});
    return std::vector<at::Tensor>{y.detach(), k.grad()};
  };
  for (const auto type : {at::kFloat, at::kDouble}) {  // by kernels and by tensor operations
    const std::vector<at::Tensor> whole = run(0, type), found = run(kBegin, type);
    for (std::size_t i = 0; i < found.size(); ++i) {
      EXPECT_LT(distance(found[i], whole[i].slice(1, kBegin)), 1e-6) << type << ", result " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Cases, BlockAttention,
    testing::Values(Case{1, 8, 64, kSoftmax, 0}, Case{63, 8, 64, kSoftmax, 0},
                    Case{130, 16, 64, kSoftmax, 0.3}, Case{130, 7, 64, kRelu, 0},
                    Case{65, 16, 64, kRelu, 0.2}, Case{70, 5, 9, kSoftmax, 0.1},
                    Case{300, 4, 256, kSoftmax, 0}, Case{300, 4, 257, kSoftmax, 0.1},
                    Case{300, 4, 0, kSoftmax, 0}, Case{300, 4, 0, kSoftmax, 0.2},
                    Case{65, 4, 0, kRelu, 0.2}));

// Names of the steps that autograd would take back, from the last one on.
std::vector<std::string> steps_behind(const at::Tensor& y) {
  std::vector<std::string> names;
  std::vector<torch::autograd::Node*> open{y.grad_fn().get()};
  while (!open.empty()) {
    torch::autograd::Node* node = open.back();
    open.pop_back();
    if (node != nullptr) {
      names.push_back(node->name());
      for (const auto& edge : node->next_edges()) {
        open.push_back(edge.function.get());
      }
    }
  }
  return names;
}

// operator_cases_test.cpp compares its results with loops.
TEST(FusedAttention, ServesSoftmaxWithoutDropoutOnlyWhereItIsChosen) {
  const auto is_fused = [](const Case& c) {
    const Operands x(c);
    const std::vector<std::string> steps =
        steps_behind(block_attention(leaf(x.q), x.k, x.v, options_of(c)));
    return std::any_of(steps.begin(), steps.end(), [](const std::string& step) {
      return step.find("ScaledDotProduct") != std::string::npos;
    });
  };
  const Case softmax{21, 8, 8, ScoreKind::softmax, 0};
  EXPECT_FALSE(is_fused(softmax));
  const ChoicesGuard guard({.fused_attention = Use::always});
  EXPECT_TRUE(is_fused(softmax));
  EXPECT_TRUE(is_fused({300, 128, 128, ScoreKind::softmax, 0}));
  EXPECT_FALSE(is_fused({21, 8, 8, ScoreKind::softmax, 0.2}));
  EXPECT_FALSE(is_fused({21, 8, 8, ScoreKind::relu, 0}));
}

TEST(BlockAttentionTypes, Bfloat16IsWithinItsRounding) {
  const Case c{130, 16, 64, kSoftmax, 0};
  Operands x(c);
  for (at::Tensor* t : {&x.q, &x.k, &x.v, &x.g}) {
    *t = t->to(at::kBFloat16);
  }
  const Answers expected = reference(x, c);
  const at::Tensor q = leaf(x.q), k = leaf(x.k), v = leaf(x.v);
  const at::Tensor y = block_attention(q, k, v, options_of(c));
  torch::autograd::backward({y}, {x.g});
  EXPECT_LT(distance(y, expected.out), 0x1.01p-8);
  EXPECT_LT(distance(q.grad(), expected.d_q), 0x1.01p-8);
  EXPECT_LT(distance(k.grad(), expected.d_k), 0x1.01p-8);
  EXPECT_LT(distance(v.grad(), expected.d_v), 0x1.01p-8);
}

TEST(BlockAttentionTypes, TheFutureAndOtherBlocksDoNotReachAToken) {
  const Operands x({130, 8, 64, kSoftmax, 0});
  const BlockAttentionOptions options = options_of({130, 8, 64, kSoftmax, 0});
  const at::Tensor before = block_attention(x.q, x.k, x.v, options);
  x.k.slice(1, 0, 64).fill_(1e3);
  x.v.slice(1, 0, 64).fill_(1e3);
  x.k.slice(1, 101).fill_(1e3);
  const at::Tensor after = block_attention(x.q, x.k, x.v, options);
  EXPECT_TRUE(at::equal(before.slice(1, 64, 101), after.slice(1, 64, 101)));
}

}  // namespace
}  // namespace transnormer::ops
