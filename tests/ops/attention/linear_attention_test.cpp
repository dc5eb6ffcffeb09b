#include "ops/attention/linear_attention.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "ops/attention/linear_attention_tensor.h"
#include "ops/reference.h"

namespace transnormer::ops {
namespace {

struct Shape {
  std::int64_t batch;
  std::int64_t time;
  std::int64_t heads;
  std::int64_t key_dim;
  std::int64_t value_dim;
};

struct Operands {
  explicit Operands(const Shape& s)
      : q(normal({s.batch, s.time, s.heads, s.key_dim}, 1)),
        k(normal({s.batch, s.time, s.heads, s.key_dim}, 2)),
        v(normal({s.batch, s.time, s.heads, s.value_dim}, 3)),
        g(normal({s.batch, s.time, s.heads, s.value_dim}, 4)) {}
  at::Tensor q, k, v, g;
};

struct Answers {
  std::vector<double> out, d_q, d_k, d_v;
};

// o_t = sum_{s<=t} (q_t . k_s) v_s and the derivative of sum(g * o), by loops.
Answers reference(const Operands& x, const Shape& s) {
  const std::vector<double> q = values(x.q), k = values(x.k), v = values(x.v), g = values(x.g);
  Answers a{std::vector<double>(v.size()), std::vector<double>(q.size()),
            std::vector<double>(k.size()), std::vector<double>(v.size())};
  const auto place = [&s](std::int64_t b, std::int64_t t, std::int64_t h, std::int64_t dim) {
    return static_cast<std::size_t>(((b * s.time + t) * s.heads + h) * dim);
  };
  for (std::int64_t b = 0; b < s.batch; ++b) {
    for (std::int64_t h = 0; h < s.heads; ++h) {
      for (std::int64_t t = 0; t < s.time; ++t) {
        for (std::int64_t u = 0; u <= t; ++u) {
          const std::size_t qt = place(b, t, h, s.key_dim), ku = place(b, u, h, s.key_dim);
          const std::size_t vu = place(b, u, h, s.value_dim), ot = place(b, t, h, s.value_dim);
          double score = 0;
          double d_score = 0;
          for (std::size_t i = 0; i < static_cast<std::size_t>(s.key_dim); ++i) {
            score += q[qt + i] * k[ku + i];
          }
          for (std::size_t i = 0; i < static_cast<std::size_t>(s.value_dim); ++i) {
            a.out[ot + i] += score * v[vu + i];
            a.d_v[vu + i] += score * g[ot + i];
            d_score += g[ot + i] * v[vu + i];
          }
          for (std::size_t i = 0; i < static_cast<std::size_t>(s.key_dim); ++i) {
            a.d_q[qt + i] += d_score * k[ku + i];
            a.d_k[ku + i] += d_score * q[qt + i];
          }
        }
      }
    }
  }
  return a;
}

at::Tensor quadratic(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  const at::Tensor scores = at::einsum("bthd,bshd->bhts", {q, k}).tril();
  return at::einsum("bhts,bshd->bthd", {scores, v});
}

class LinearAttention : public testing::TestWithParam<Shape> {};

TEST_P(LinearAttention, AgreesWithLoopsForwardAndBackward) {
  const Operands x(GetParam());
  const Answers expected = reference(x, GetParam());
  const at::Tensor q = leaf(x.q), k = leaf(x.k), v = leaf(x.v);
  const at::Tensor y = linear_attention(strided(q), k, strided(v));
  torch::autograd::backward({y}, {x.g});
  EXPECT_LT(distance(y, expected.out), 2e-6);
  EXPECT_LT(distance(q.grad(), expected.d_q), 2e-6);
  EXPECT_LT(distance(k.grad(), expected.d_k), 2e-6);
  EXPECT_LT(distance(v.grad(), expected.d_v), 2e-6);
}

TEST_P(LinearAttention, InTensorOperationsAgreesToo) {
  const Operands x(GetParam());
  const Answers expected = reference(x, GetParam());
  EXPECT_LT(distance(chunked_forward(x.q, x.k, x.v, {}), expected.out), 2e-6);
  const LinearAttentionGradients d = chunked_backward(x.q, x.k, x.v, x.g);
  EXPECT_LT(distance(d.q, expected.d_q), 2e-6);
  EXPECT_LT(distance(d.k, expected.d_k), 2e-6);
  EXPECT_LT(distance(d.v, expected.d_v), 2e-6);
}

TEST_P(LinearAttention, QuadraticAndStepByStepFormsAgree) {
  const Shape s = GetParam();
  const Operands x(s);
  const at::Tensor whole = linear_attention(x.q, x.k, x.v);
  EXPECT_LT(distance(whole, quadratic(x.q, x.k, x.v)), 2e-6);
  LinearAttentionSums state(s.batch, s.heads, s.key_dim, s.value_dim, {}, at::kCPU);
  std::vector<at::Tensor> parts;
  for (std::int64_t t = 0; t < s.time;) {
    // A chunk that is no multiple of 64, then single steps.
    const std::int64_t n = t == 0 ? std::max<std::int64_t>(s.time - 5, 1) : 1;
    parts.push_back(linear_attention_step(x.q.narrow(1, t, n), x.k.narrow(1, t, n),
                                                 x.v.narrow(1, t, n), state));
    t += n;
  }
  EXPECT_LT(distance(whole, at::cat(parts, 1)), 2e-6);
  EXPECT_LT(distance(state.values, at::einsum("bthk,bthv->bhkv", {x.k, x.v})), 2e-6);
}

INSTANTIATE_TEST_SUITE_P(Shapes, LinearAttention,
                         testing::Values(Shape{1, 1, 1, 4, 4}, Shape{2, 63, 3, 8, 8},
                                         Shape{1, 64, 2, 64, 64}, Shape{2, 65, 1, 5, 7},
                                         Shape{1, 130, 2, 33, 20}, Shape{1, 200, 1, 100, 16}));

TEST(LinearAttentionTypes, Bfloat16IsWithinItsRounding) {
  const Shape s{2, 130, 2, 32, 32};
  Operands x(s);
  for (at::Tensor* t : {&x.q, &x.k, &x.v, &x.g}) {
    *t = t->to(at::kBFloat16);
  }
  const Answers expected = reference(x, s);
  const at::Tensor q = leaf(x.q), k = leaf(x.k), v = leaf(x.v);
  const at::Tensor y = linear_attention(q, k, v);
  ASSERT_EQ(y.scalar_type(), at::kBFloat16);
  torch::autograd::backward({y}, {x.g});
  // Only results are rounded: half a unit in the last of eight bits.
  EXPECT_LT(distance(y, expected.out), 0x1.01p-8);
  EXPECT_LT(distance(q.grad(), expected.d_q), 0x1.01p-8);
  EXPECT_LT(distance(k.grad(), expected.d_k), 0x1.01p-8);
  EXPECT_LT(distance(v.grad(), expected.d_v), 0x1.01p-8);
}

TEST(LinearAttentionTypes, HalfGivesItsSumsInSingle) {
  const Shape s{1, 70, 2, 8, 8};
  Operands x(s);
  for (at::Tensor* t : {&x.q, &x.k, &x.v}) {
    *t = t->to(at::kHalf);
  }
  const Answers expected = reference(x, s);
  const at::Tensor q = leaf(x.q), k = leaf(x.k), v = leaf(x.v);
  const at::Tensor y = linear_attention(q, k, v);
  ASSERT_EQ(y.scalar_type(), at::kFloat);
  torch::autograd::backward({y}, {x.g});
  EXPECT_LT(distance(y, expected.out), 2e-6);
  EXPECT_EQ(q.grad().scalar_type(), at::kHalf);
  EXPECT_LT(distance(q.grad(), expected.d_q), 0x1.01p-11);
  EXPECT_LT(distance(k.grad(), expected.d_k), 0x1.01p-11);
  EXPECT_LT(distance(v.grad(), expected.d_v), 0x1.01p-11);
}

// 512 tokens of 64 dimensions with q = k = 2 and v = 1 sum up to 131,072; half ends at 65,504.
TEST(LinearAttentionTypes, SumsBeyondHalfStayFinite) {
  const auto filled = [](double x) { return at::full({1, 512, 1, 64}, x, at::kHalf); };
  LinearAttentionSums state(1, 1, 64, 64, {}, at::kCPU);
  const at::Tensor whole = linear_attention(filled(2), filled(2), filled(1));
  const at::Tensor stepped = linear_attention_step(filled(2), filled(2), filled(1), state);
  EXPECT_EQ(whole.slice(1, -1).min().item<double>(), 131072);
  EXPECT_TRUE(at::equal(whole, stepped));
}

TEST(LinearAttentionTypes, TheFutureDoesNotReachThePast) {
  const Operands x({1, 150, 2, 16, 16});
  const at::Tensor before = linear_attention(x.q, x.k, x.v);
  x.k.slice(1, 101).fill_(1e3);
  x.v.slice(1, 101).fill_(1e3);
  const at::Tensor after = linear_attention(x.q, x.k, x.v);
  EXPECT_TRUE(at::equal(before.slice(1, 0, 101), after.slice(1, 0, 101)));
}

}  // namespace
}  // namespace transnormer::ops
