#include "ops/attention/window.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "ops/reference.h"

namespace transnormer::ops {
namespace {

constexpr std::int64_t kRows = 2, kHeads = 3, kKeyDim = 5, kValueDim = 4;
constexpr std::int64_t kShort = 2;  // tokens that row 1 lacks, where lengths are given

struct Case {
  std::int64_t time;
  std::int64_t window;
  bool causal;
  bool lengths;

  [[nodiscard]] std::int64_t length(std::int64_t row) const {
    return lengths && row == 1 ? std::max<std::int64_t>(time - kShort, 1) : time;
  }
  [[nodiscard]] Band band() const {
    return {time, window, causal,
            lengths ? at::tensor({length(0), length(1)}, at::kLong) : at::Tensor(), at::kCPU};
  }
  [[nodiscard]] std::string name() const {
    return "time " + std::to_string(time) + ", window " + std::to_string(window) +
           (causal ? ", causal" : "") + (lengths ? ", lengths" : "");
  }
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const auto& [time, window] :
       {std::pair(1, 1), std::pair(1, 64), std::pair(7, 3), std::pair(31, 64), std::pair(65, 1),
        std::pair(77, 33), std::pair(130, 64), std::pair(131, 40), std::pair(301, 150)}) {
    for (const bool causal : {true, false}) {
      for (const bool lengths : {true, false}) {
        all.push_back({time, window, causal, lengths});
      }
    }
  }
  return all;
}

struct Operands {
  explicit Operands(std::int64_t time)
      : q(normal({kRows, time, kHeads, kKeyDim}, 1)),
        k(normal({kRows, time, kHeads, kKeyDim}, 2)),
        v(normal({kRows, time, kHeads, kValueDim}, 3)),
        g(normal({kRows, time, kHeads, kValueDim}, 4)) {}
  at::Tensor q, k, v, g;
};

struct Answers {
  std::vector<double> out, d_q, d_k, d_v;
};

// With weights (q·k)^2: one pair at a time.
Answers reference(const Operands& x, const Case& c) {
  const std::vector<double> q = values(x.q), k = values(x.k), v = values(x.v), g = values(x.g);
  Answers a{std::vector<double>(v.size()), std::vector<double>(q.size()),
            std::vector<double>(k.size()), std::vector<double>(v.size())};
  for (std::int64_t row = 0; row < kRows; ++row) {
    for (std::int64_t h = 0; h < kHeads; ++h) {
      for (std::int64_t i = 0; i < c.length(row); ++i) {
        for (std::int64_t j = 0; j < c.length(row); ++j) {
          if (c.causal ? j > i || j <= i - c.window : std::abs(i - j) >= c.window) {
            continue;
          }
          const auto at = [&](std::int64_t t, std::int64_t dim) {
            return static_cast<std::size_t>(((row * c.time + t) * kHeads + h) * dim);
          };
          double score = 0, along = 0;
          for (std::size_t d = 0; d < kKeyDim; ++d) {
            score += q[at(i, kKeyDim) + d] * k[at(j, kKeyDim) + d];
          }
          for (std::size_t d = 0; d < kValueDim; ++d) {
            a.out[at(i, kValueDim) + d] += score * score * v[at(j, kValueDim) + d];
            a.d_v[at(j, kValueDim) + d] += score * score * g[at(i, kValueDim) + d];
            along += g[at(i, kValueDim) + d] * v[at(j, kValueDim) + d];
          }
          for (std::size_t d = 0; d < kKeyDim; ++d) {
            a.d_q[at(i, kKeyDim) + d] += 2 * score * along * k[at(j, kKeyDim) + d];
            a.d_k[at(j, kKeyDim) + d] += 2 * score * along * q[at(i, kKeyDim) + d];
          }
        }
      }
    }
  }
  return a;
}

// What stands behind a row's last token counts for nothing.
at::Tensor of_tokens(const at::Tensor& x, const Case& c) {
  at::Tensor y = x.clone();
  y[1].slice(0, c.length(1)).zero_();
  return y;
}

at::Tensor attend(const Band& band, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  return band.apply(band.scores(q, k).square().masked_fill(band.hidden(), 0), v);
}

TEST(Band, AgreesWithLoopsForwardAndBackward) {
  for (const Case& c : cases()) {
    const Operands x(c.time);
    const at::Tensor q = leaf(of_tokens(x.q, c)), k = leaf(of_tokens(x.k, c)),
                     v = leaf(of_tokens(x.v, c)), g = of_tokens(x.g, c);
    const Answers expected = reference(x, c);
    const at::Tensor y = attend(c.band(), q, strided(k), v);
    torch::autograd::backward({y}, {g});
    EXPECT_LT(distance(of_tokens(y.detach(), c), expected.out), 2e-6) << c.name();
    EXPECT_LT(distance(q.grad(), expected.d_q), 3e-6) << c.name();
    EXPECT_LT(distance(k.grad(), expected.d_k), 3e-6) << c.name();
    EXPECT_LT(distance(v.grad(), expected.d_v), 3e-6) << c.name();
  }
}

TEST(Band, HidesNoQueryFromItselfWhereverItIs) {
  for (const Case& c : cases()) {
    const Band band = c.band();
    const at::Tensor keys = band.hidden().logical_not().sum(-1);
    EXPECT_GE(keys.min().item<std::int64_t>(), 1) << c.name();
    EXPECT_LE(keys.max().item<std::int64_t>(), c.causal ? c.window : 2 * c.window - 1) << c.name();
  }
}

// Numbers a token do not grow with the length.
TEST(Band, NeedsMemoryForItsReachOnly) {
  for (const std::int64_t window : {1, 20, 64, 500}) {
    for (const bool causal : {true, false}) {
      const Band band(5000, window, causal, {}, at::kCPU);
      EXPECT_GE(band.blocks() * band.block(), 5000);
      EXPECT_LE(band.span(), (causal ? 2 : 3) * std::max<std::int64_t>(window, 32));
    }
  }
}

TEST(Band, IsNotReachedByWhatIsHidden) {
  for (const bool causal : {true, false}) {
    const Band band(131, 40, causal, {}, at::kCPU);
    Operands x(131);
    const at::Tensor before = attend(band, x.q, x.k, x.v);
    x.k.slice(1, 90).fill_(1e3);
    x.v.slice(1, 90).fill_(1e3);
    const at::Tensor after = attend(band, x.q, x.k, x.v);
    const std::int64_t reached = causal ? 90 : 90 - 39;
    EXPECT_TRUE(at::equal(before.slice(1, 0, reached), after.slice(1, 0, reached)));
    EXPECT_FALSE(at::equal(before.select(1, reached), after.select(1, reached)));
  }
}

TEST(Band, TakesHalfPrecisionAndAnswersInFp32) {
  const Case c{77, 33, true, false};
  Operands x(c.time);
  for (at::Tensor* tensor : {&x.q, &x.k, &x.v}) {
    *tensor = tensor->to(at::kBFloat16);
  }
  const Answers expected = reference(x, c);
  const at::Tensor q = leaf(x.q), k = leaf(x.k), v = leaf(x.v);
  const at::Tensor y = attend(c.band(), q, k, v);
  EXPECT_EQ(y.scalar_type(), at::kFloat);
  EXPECT_LT(distance(y, expected.out), 2e-6);
  torch::autograd::backward({y}, {x.g});
  EXPECT_LT(distance(q.grad(), expected.d_q), 0x1.01p-8);
  EXPECT_LT(distance(k.grad(), expected.d_k), 0x1.01p-8);
  EXPECT_LT(distance(v.grad(), expected.d_v), 0x1.01p-8);
}

}  // namespace
}  // namespace transnormer::ops
