// Linear attention where each rank has a part of the sequence, against the whole: plain
// loops in double precision, and the same operators on one rank.
#include "ops/attention/sequence_sums.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <vector>

#include "dist/threads.h"
#include "ops/attention/linear_attention.h"
#include "ops/reference.h"

namespace transnormer::ops {
namespace {

struct Case {
  int ranks;
  std::int64_t batch;
  std::int64_t part;  // tokens of a rank
  std::int64_t heads;
  std::int64_t key_dim;
  std::int64_t value_dim;
  bool encoded = false;

  [[nodiscard]] std::int64_t time() const { return ranks * part; }
};

at::Tensor part_of(const at::Tensor& x, int rank, int ranks) {
  const std::int64_t part = x.size(1) / ranks;
  return x.narrow(1, rank * part, part);
}

struct Operands {
  explicit Operands(const Case& c)
      : q(normal({c.batch, c.time(), c.heads, c.key_dim}, 1)),
        k(normal({c.batch, c.time(), c.heads, c.key_dim}, 2)),
        v(normal({c.batch, c.time(), c.heads, c.value_dim}, 3)),
        g(normal({c.batch, c.time(), c.heads, c.value_dim}, 4)),
        theta(normal({c.key_dim / 2}, 5).abs()),
        unit(normal({c.key_dim}, 6)) {}

  [[nodiscard]] Operands to(at::ScalarType type) const {
    Operands typed = *this;
    for (at::Tensor* x : {&typed.q, &typed.k, &typed.v, &typed.g}) {
      *x = x->to(type);
    }
    return typed;
  }

  at::Tensor q, k, v, g, theta, unit;
};

struct Answers {
  at::Tensor out, d_q, d_k, d_v, d_theta;
};

// 1 + elu, the reflection at `unit` and the rotation by position * theta of each pair.
at::Tensor encoded(const at::Tensor& x, const at::Tensor& theta, const at::Tensor& unit) {
  const at::Tensor phi = at::elu(x) + 1;
  const at::Tensor u = (unit / unit.norm()).to(at::kDouble);
  const at::Tensor reflected = phi - 2 * (phi * u).sum(-1, /*keepdim=*/true) * u;
  const at::Tensor angle = (at::arange(x.size(1), at::kDouble).unsqueeze(1) * theta).unsqueeze(1);
  const at::Tensor even = reflected.slice(-1, 0, c10::nullopt, 2);
  const at::Tensor odd = reflected.slice(-1, 1, c10::nullopt, 2);
  return at::stack({even * angle.cos() - odd * angle.sin(), even * angle.sin() + odd * angle.cos()},
                   -1)
      .flatten(-2);
}

// One head of one sample: the running sum of k v^T forward, that of q g^T backward.
void attend(const Operands& x, Answers& a, std::int64_t batch, std::int64_t head) {
  const auto rows = [&](const at::Tensor& of) { return of.select(0, batch).select(1, head); };
  const auto q = rows(x.q), k = rows(x.k), v = rows(x.v), g = rows(x.g);
  const auto out = rows(a.out), d_q = rows(a.d_q), d_k = rows(a.d_k), d_v = rows(a.d_v);
  const auto number = [](const at::Tensor& of) { return of.accessor<double, 2>(); };
  const auto nq = number(q), nk = number(k), nv = number(v), ng = number(g);
  auto no = number(out), ndq = number(d_q), ndk = number(d_k), ndv = number(d_v);
  std::vector<double> sum(static_cast<std::size_t>(k.size(1) * v.size(1)));
  const auto each = [&](const auto& body) {
    for (std::int64_t i = 0; i < k.size(1); ++i) {
      for (std::int64_t j = 0; j < v.size(1); ++j) {
        body(i, j, sum[static_cast<std::size_t>(i * v.size(1) + j)]);
      }
    }
  };
  for (std::int64_t t = 0; t < q.size(0); ++t) {
    each([&](std::int64_t i, std::int64_t j, double& s) {
      s += nk[t][i] * nv[t][j];
      no[t][j] += nq[t][i] * s;
      ndq[t][i] += ng[t][j] * s;
    });
  }
  std::fill(sum.begin(), sum.end(), 0.0);
  for (std::int64_t t = q.size(0) - 1; t >= 0; --t) {
    each([&](std::int64_t i, std::int64_t j, double& s) {
      s += nq[t][i] * ng[t][j];
      ndk[t][i] += nv[t][j] * s;
      ndv[t][j] += nk[t][i] * s;
    });
  }
}

Answers reference(const Operands& given, const Case& c) {
  Operands x = given.to(at::kDouble);
  x.theta = leaf(x.theta.to(at::kDouble));
  const at::Tensor q = leaf(x.q), k = leaf(x.k);
  if (c.encoded) {
    x.q = encoded(q, x.theta, x.unit);
    x.k = encoded(k, x.theta, x.unit);
  }
  const torch::autograd::variable_list through{x.q, x.k};
  x.q = x.q.detach();
  x.k = x.k.detach();
  Answers a{at::zeros_like(x.v), at::zeros_like(x.q), at::zeros_like(x.k), at::zeros_like(x.v), {}};
  for (std::int64_t batch = 0; batch < c.batch; ++batch) {
    for (std::int64_t head = 0; head < c.heads; ++head) {
      attend(x, a, batch, head);
    }
  }
  if (c.encoded) {
    torch::autograd::backward(through, {a.d_q, a.d_k});
    a.d_q = q.grad();
    a.d_k = k.grad();
    a.d_theta = x.theta.grad();
  }
  return a;
}

// What the ranks found of their parts, put together.
Answers on_ranks(const Operands& whole, const Case& c) {
  Answers result;
  dist::with_group(c.ranks, [&](const dist::Group& group) {
    at::set_num_threads(1);
    const auto own = [&](const at::Tensor& x) { return part_of(x, group.rank(), c.ranks); };
    const at::Tensor q = leaf(own(whole.q)), k = leaf(own(whole.k)), v = leaf(own(whole.v));
    const at::Tensor theta = leaf(whole.theta);
    LinearAttentionOptions options{.sequence = &group};
    if (c.encoded) {
      options.encoding = {.feature = FeatureMap::elu1,
                          .theta = theta,
                          .reflect = whole.unit / whole.unit.norm(),
                          .first_position = group.rank() * c.part};
    }
    const at::Tensor y = linear_attention(q, k, v, options);
    torch::autograd::backward({y}, {own(whole.g).to(y.scalar_type())});
    const auto joined = [&](const at::Tensor& x) {
      return at::cat(group.gather(x.detach()).unbind(0), 1);
    };
    Answers found{joined(y), joined(q.grad()), joined(k.grad()), joined(v.grad()), {}};
    if (c.encoded) {
      found.d_theta = theta.grad();
      group.sum(found.d_theta);
    }
    if (group.rank() == 0) {
      result = found;
    }
  });
  return result;
}

void expect_close(const Answers& found, const Answers& expected, double tolerance) {
  EXPECT_LT(distance(found.out, expected.out), tolerance);
  EXPECT_LT(distance(found.d_q, expected.d_q), tolerance);
  EXPECT_LT(distance(found.d_k, expected.d_k), tolerance);
  EXPECT_LT(distance(found.d_v, expected.d_v), tolerance);
  if (expected.d_theta.defined()) {
    EXPECT_LT(distance(found.d_theta, expected.d_theta), 10 * tolerance);
  }
}

class SharedLinearAttention : public testing::TestWithParam<Case> {};

TEST_P(SharedLinearAttention, IsThatOfTheWholeSequenceByKernelsAndByTensorOperations) {
  const Case c = GetParam();
  const Operands x(c);
  const Answers expected = reference(x, c);
  expect_close(on_ranks(x, c), expected, 4e-6);
  expect_close(on_ranks(x.to(at::kDouble), c), expected, 4e-6);  // no kernel takes doubles
}

TEST_P(SharedLinearAttention, InBfloat16IsRoundedOnce) {
  const Case c = GetParam();
  const Operands x = Operands(c).to(at::kBFloat16);
  const Answers found = on_ranks(x, c);
  EXPECT_EQ(found.out.scalar_type(), at::kBFloat16);
  expect_close(found, reference(x, c), 0x1.01p-8);
}

INSTANTIATE_TEST_SUITE_P(Shapes, SharedLinearAttention,
                         testing::Values(Case{2, 1, 1, 1, 4, 4}, Case{2, 2, 63, 3, 8, 5},
                                         Case{3, 1, 65, 2, 33, 20}, Case{4, 3, 40, 1, 5, 7},
                                         Case{2, 1, 128, 2, 64, 64}, Case{2, 2, 64, 1, 8, 5, true},
                                         Case{3, 1, 70, 2, 12, 20, true},
                                         Case{4, 1, 130, 2, 64, 64, true}));

TEST(SharedLinearAttention, InHalfKeepsItsSumsInSingle) {
  const Case c{3, 1, 65, 2, 33, 20};
  const Operands x = Operands(c).to(at::kHalf);
  const Answers found = on_ranks(x, c);
  EXPECT_EQ(found.out.scalar_type(), at::kFloat);
  expect_close(found, reference(x, c), 0x1.01p-11);
}

TEST(SharedLinearAttention, OfAGroupOfOneHasTheBitsOfNone) {
  const Case c{1, 2, 100, 2, 16, 16};
  const Operands x(c);
  const dist::Group alone;
  const at::Tensor y = linear_attention(x.q, x.k, x.v, {.sequence = &alone});
  EXPECT_TRUE(at::equal(y, linear_attention(x.q, x.k, x.v)));
}

TEST(SharedLinearAttention, RefusesWhatIsNotPlain) {
  dist::with_group(2, [](const dist::Group& group) {
    const at::Tensor x = normal({1, 8, 1, 4}, 1);
    EXPECT_THROW(
        (void)linear_attention(x, x, x, {.visibility = {.causal = false}, .sequence = &group}),
        c10::Error);
  });
}

}  // namespace
}  // namespace transnormer::ops
