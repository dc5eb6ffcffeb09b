#include "ops/attention/lrpe.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "ops/reference.h"

namespace transnormer::ops {
namespace {

struct Case {
  std::int64_t time;
  std::int64_t heads;
  std::int64_t dim;
  std::int64_t first_position;
  std::int64_t period;
};

constexpr std::int64_t kBatch = 2;

std::vector<double> reference(const std::vector<double>& x, const std::vector<double>& theta,
                              const std::vector<double>& unit, const Case& c) {
  std::vector<double> y(x.size());
  const auto dim = static_cast<std::size_t>(c.dim);
  for (std::size_t row = 0; row < x.size() / dim; ++row) {
    const auto time = static_cast<std::int64_t>(row) / c.heads % c.time + c.first_position;
    const auto position = static_cast<double>(c.period > 0 ? time % c.period : time);
    double along = 0;
    for (std::size_t i = 0; i < dim; ++i) {
      along += x[row * dim + i] * unit[i];
    }
    for (std::size_t i = 0; i < dim / 2; ++i) {
      const double a = x[row * dim + 2 * i] - 2 * along * unit[2 * i];
      const double b = x[row * dim + 2 * i + 1] - 2 * along * unit[2 * i + 1];
      const double angle = position * theta[i];
      y[row * dim + 2 * i] = a * std::cos(angle) - b * std::sin(angle);
      y[row * dim + 2 * i + 1] = a * std::sin(angle) + b * std::cos(angle);
    }
  }
  return y;
}

// d(y_even) / d(angle) = -y_odd, d(y_odd) / d(angle) = y_even, and the angle is position * theta.
std::vector<double> theta_gradient(const std::vector<double>& y, const std::vector<double>& g,
                                   const Case& c) {
  const auto dim = static_cast<std::size_t>(c.dim);
  std::vector<double> d_theta(dim / 2);
  for (std::size_t row = 0; row < y.size() / dim; ++row) {
    const auto time = static_cast<std::int64_t>(row) / c.heads % c.time + c.first_position;
    const auto position = static_cast<double>(c.period > 0 ? time % c.period : time);
    for (std::size_t i = 0; i < dim / 2; ++i) {
      const std::size_t even = row * dim + 2 * i;
      d_theta[i] += position * (g[even + 1] * y[even] - g[even] * y[even + 1]);
    }
  }
  return d_theta;
}

class LrpeOf : public testing::TestWithParam<Case> {
 protected:
  Case c = GetParam();
  at::Tensor x = normal({kBatch, c.time, c.heads, c.dim}, 1);
  at::Tensor theta = normal({c.dim / 2}, 2).abs();
  at::Tensor unit = unit_vector();
  at::Tensor g = normal({kBatch, c.time, c.heads, c.dim}, 4);

  [[nodiscard]] at::Tensor unit_vector() const {
    const at::Tensor u = normal({c.dim}, 3);
    return u / u.norm();
  }
};

// Double has no kernel of ours, so that it goes by the tensor operations, which compute in single.
TEST_P(LrpeOf, AgreesWithItsDefinitionAndDifferencesByKernelAndByTensors) {
  const std::vector<double> expected = reference(values(x), values(theta), values(unit), c);
  const auto of_x = [&](const auto& at) { return reference(at, values(theta), values(unit), c); };
  for (const auto type : {at::kFloat, at::kDouble}) {
    const at::Tensor a = leaf(x.to(type)), b = leaf(theta);
    const at::Tensor y = lrpe(strided(a), b, unit, c.first_position, c.period);
    ASSERT_EQ(y.scalar_type(), type);
    torch::autograd::backward({y}, {g.to(type)});
    EXPECT_LT(distance(y, expected), 1e-6);
    if (x.numel() < 2000) {
      EXPECT_LT(distance(a.grad(), gradient_of(of_x, values(g), values(x))), 2e-6);
    }
    EXPECT_LT(distance(b.grad(), theta_gradient(expected, values(g), c)), 1e-6);
  }
}

TEST_P(LrpeOf, OtherTypesAgree) {
  const at::Tensor rounded = x.to(at::kBFloat16);
  EXPECT_LT(distance(lrpe(rounded, theta, unit, c.first_position, c.period),
                     reference(values(rounded), values(theta), values(unit), c)),
            0x1.01p-8);
  // Half goes by the general path, gradients too.
  const at::Tensor a = leaf(x), b = leaf(theta), d = leaf(x), e = leaf(theta);
  torch::autograd::backward({lrpe(a, b, unit, c.first_position, c.period)}, {g});
  torch::autograd::backward({lrpe(d.to(at::kHalf), e, unit, c.first_position, c.period)},
                            {g.to(at::kHalf)});
  EXPECT_LT(distance(d.grad(), a.grad()), 4e-3);
  EXPECT_LT(distance(e.grad(), b.grad()), 4e-3);
}

INSTANTIATE_TEST_SUITE_P(Cases, LrpeOf,
                         testing::Values(Case{1, 1, 2, 0, 0}, Case{9, 2, 6, 0, 0},
                                         Case{70, 1, 8, 3, 64}, Case{130, 2, 20, 7, 0},
                                         Case{300, 3, 64, 0, 64}, Case{5, 2, 16, 62, 64},
                                         Case{65, 1, 34, 100000, 0}));

TEST(LrpeScores, DependOnThePositionsDifferenceOnly) {
  const at::Tensor theta = normal({8}, 1).abs();
  const at::Tensor u = normal({16}, 2);
  const at::Tensor unit = u / u.norm();
  const at::Tensor q = normal({1, 1, 1, 16}, 3), k = normal({1, 1, 1, 16}, 4);
  const auto score = [&](std::int64_t i, std::int64_t j) {
    return (lrpe(q, theta, unit, i, 0) * lrpe(k, theta, unit, j, 0)).sum().item<double>();
  };
  EXPECT_NEAR(score(5, 2), score(1005, 1002), 1e-4);
  EXPECT_GT(std::abs(score(5, 2) - score(9, 2)), 1e-2);
}

// As decoding asks for it, with angles that lie in the table itself or, of wide heads, do not.
TEST(LrpeOfOneToken, HasTheBitsOfTheTokenAmongOthers) {
  for (const std::int64_t dim : {16, 256, 258}) {
    const at::Tensor theta = normal({dim / 2}, 1).abs();
    const at::Tensor u = normal({dim}, 2);
    const at::Tensor unit = u / u.norm();
    const at::Tensor x = normal({2, 5, 3, dim}, 3);
    for (const std::int64_t period : {0, 1, 8, 64}) {
      for (const std::int64_t first : {0, 61, 100000}) {
        const at::Tensor together = lrpe(x, theta, unit, first, period);
        for (std::int64_t t = 0; t < 5; ++t) {
          EXPECT_TRUE(at::equal(lrpe(x.narrow(1, t, 1), theta, unit, first + t, period),
                                together.narrow(1, t, 1)))
              << dim << ", " << period << ", " << first + t;
        }
      }
    }
  }
}

TEST(LrpeInParts, EqualsTheWholeSequence) {
  const at::Tensor theta = normal({8}, 1).abs();
  const at::Tensor unit = at::zeros({16}).index_fill(0, at::zeros({1}, at::kLong), 1);
  const at::Tensor x = normal({2, 200, 2, 16}, 3);
  const at::Tensor whole = lrpe(x, theta, unit, 0, 0);
  EXPECT_LT(distance(lrpe(x.slice(1, 130), theta, unit, 130, 0), whole.slice(1, 130)), 1e-6);
}

}  // namespace
}  // namespace transnormer::ops
