#include "ops/residual.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "ops/norm.h"
#include "ops/reference.h"

namespace transnormer::ops {
namespace {

constexpr double kEps = 1e-3;
const DropoutKey kKey{.seed = 3, .update = 5, .layer = 1, .site = 2, .first_sample = 9};

std::vector<double> norm_of(const std::vector<double>& x, std::size_t dim) {
  std::vector<double> y(x.size());
  for (std::size_t row = 0; row < x.size(); row += dim) {
    double squares = 0;
    for (std::size_t i = 0; i < dim; ++i) {
      squares += x[row + i] * x[row + i];
    }
    for (std::size_t i = 0; i < dim; ++i) {
      y[row + i] = x[row + i] / std::sqrt(squares / static_cast<double>(dim) + kEps);
    }
  }
  return y;
}

// The types of y and the norm; half goes by tensor operations on a CPU.
class Residual : public testing::TestWithParam<std::tuple<at::ScalarType, std::int64_t, double>> {
 protected:
  at::ScalarType type = std::get<0>(GetParam());
  std::int64_t dim = std::get<1>(GetParam());
  Drop drop{std::get<2>(GetParam()), kKey};
  double unit = type == at::kFloat ? 2e-6 : (type == at::kBFloat16 ? 0x1.01p-7 : 0x1.01p-10);

  at::Tensor x = normal({3, 5, dim}, 1);
  at::Tensor y = normal({3, 5, dim}, 2).to(type);
  at::Tensor g_stream = normal({3, 5, dim}, 3);
  at::Tensor g_norm = normal({3, 5, dim}, 4).to(type);
  std::vector<double> mask = values(
      drop.p > 0 ? dropout_mask(3, 5 * dim, drop.p, drop.key, at::kCPU) : at::ones({3, 5 * dim}));

  [[nodiscard]] std::vector<double> sum(const std::vector<double>& a,
                                        const std::vector<double>& b) const {
    std::vector<double> s(a.size());
    for (std::size_t i = 0; i < s.size(); ++i) {
      s[i] = a[i] + mask[i] * b[i];
    }
    return s;
  }
  [[nodiscard]] std::vector<double> both(const std::vector<double>& s) const {
    std::vector<double> result = s;
    const std::vector<double> n = norm_of(s, static_cast<std::size_t>(dim));
    result.insert(result.end(), n.begin(), n.end());
    return result;
  }
  [[nodiscard]] std::vector<double> weights() const {
    std::vector<double> w = values(g_stream);
    const std::vector<double> n = values(g_norm);
    w.insert(w.end(), n.begin(), n.end());
    return w;
  }
};

TEST_P(Residual, AddsWhatDropoutLeaves) {
  const at::Tensor a = leaf(x), b = leaf(y);
  const at::Tensor s = residual(strided(a), strided(b), drop);
  EXPECT_EQ(s.scalar_type(), at::kFloat);
  EXPECT_LT(distance(s, sum(values(x), values(y))), type == at::kFloat ? 1e-6 : unit);
  torch::autograd::backward({s}, {g_stream});
  EXPECT_TRUE(at::equal(a.grad(), g_stream));
  ASSERT_EQ(b.grad().scalar_type(), type);
  const std::vector<double> zeros(values(x).size());
  EXPECT_LT(distance(b.grad(), sum(zeros, values(g_stream))), unit);
}

TEST_P(Residual, ItsNormAndBothGradientsAgreeWithDefinitionAndDifferences) {
  const at::Tensor a = leaf(x), b = leaf(y);
  const auto [stream, normed] = residual_srms_norm(a, b, drop, kEps, type);
  ASSERT_EQ(stream.scalar_type(), at::kFloat);
  ASSERT_EQ(normed.scalar_type(), type);
  const std::vector<double> s = sum(values(x), values(y));
  EXPECT_LT(distance(stream, s), type == at::kFloat ? 1e-6 : unit);
  EXPECT_LT(distance(normed, norm_of(s, static_cast<std::size_t>(dim))), unit);
  torch::autograd::backward({stream, normed}, {g_stream, g_norm});
  const auto of_x = [&](const std::vector<double>& at) { return both(sum(at, values(y))); };
  const auto of_y = [&](const std::vector<double>& at) { return both(sum(values(x), at)); };
  EXPECT_LT(distance(a.grad(), gradient_of(of_x, weights(), values(x))), 2 * unit);
  EXPECT_LT(distance(b.grad(), gradient_of(of_y, weights(), values(y))), 2 * unit);
}

TEST_P(Residual, WithoutABranchTheStreamPassesAndGathersBothGradients) {
  const at::Tensor a = leaf(x);
  const auto [stream, normed] = residual_srms_norm(a, {}, {}, kEps, type);
  EXPECT_TRUE(at::equal(stream, x));
  EXPECT_TRUE(at::equal(normed, srms_norm(x, kEps, type)));
  torch::autograd::backward({stream, normed}, {g_stream, g_norm});
  const auto f = [&](const std::vector<double>& at) { return both(at); };
  EXPECT_LT(distance(a.grad(), gradient_of(f, weights(), values(x))), 2 * unit);
}

TEST_P(Residual, AStreamThatIsNotDenseHasTheGradientsOfOneThatIs) {
  const at::Tensor a = leaf(x), b = leaf(x);
  const auto dense = residual_srms_norm(a, {}, {}, kEps, type);
  torch::autograd::backward({dense.stream, dense.normed}, {g_stream, g_norm});
  const auto turned = residual_srms_norm(b.transpose(0, 1), {}, {}, kEps, type);
  EXPECT_LT(distance(turned.normed.transpose(0, 1), dense.normed), unit);
  torch::autograd::backward({turned.stream, turned.normed},
                            {g_stream.transpose(0, 1), g_norm.transpose(0, 1)});
  EXPECT_LT(distance(b.grad(), a.grad()), 2 * unit);
}

TEST_P(Residual, AMissingGradientCountsAsZero) {
  const at::Tensor a = leaf(x), b = leaf(y);
  const auto made = residual_srms_norm(a, b, drop, kEps, type);
  torch::autograd::backward({made.normed}, {g_norm});
  const auto of_x = [&](const std::vector<double>& at) {
    return norm_of(sum(at, values(y)), static_cast<std::size_t>(dim));
  };
  EXPECT_LT(distance(a.grad(), gradient_of(of_x, values(g_norm), values(x))), 2 * unit);

  const at::Tensor c = leaf(x), d = leaf(y);
  torch::autograd::backward({residual_srms_norm(c, d, drop, kEps, type).stream}, {g_stream});
  EXPECT_TRUE(at::equal(c.grad(), g_stream));
  const std::vector<double> zeros(values(x).size());
  EXPECT_LT(distance(d.grad(), sum(zeros, values(g_stream))), unit);
}

TEST_P(Residual, OfAPartOfASampleIsThatOfItsPlaceInTheWhole) {
  const auto run = [&](std::int64_t first, const Drop& dropped) {
    const auto part = [first](const at::Tensor& of) { return leaf(of.slice(1, first)); };
    const at::Tensor b = part(y);
    const auto made = residual_srms_norm(part(x), b, dropped, kEps, type);
    torch::autograd::backward({made.stream}, {part(g_stream)});
    return std::vector<at::Tensor>{made.stream.detach(), made.normed.detach(), b.grad()};
  };
  Drop later = drop;
  later.key.first_element = 2 * dim;
  const std::vector<at::Tensor> whole = run(0, drop), found = run(2, later);
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_TRUE(at::equal(found[i], whole[i].slice(1, 2))) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Residual,
                         testing::Combine(testing::Values(at::kFloat, at::kBFloat16, at::kHalf),
                                          testing::Values(1, 13, 64, 130),
                                          testing::Values(0.0, 0.3)));

}  // namespace
}  // namespace transnormer::ops
