#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "model/attention/against_loops.h"
#include "model/models.h"
#include "util/error.h"

namespace transnormer::test {
namespace {

constexpr std::int64_t kDim = 24, kTime = 19;

std::string json(std::int64_t landmarks, std::int64_t conv) {
  return R"({"attention": "nystromformer", "landmarks": )" + std::to_string(landmarks) +
         R"(, "conv": )" + std::to_string(conv) + "}";
}

std::shared_ptr<Attention> make(std::int64_t landmarks, std::int64_t conv) {
  return make_started(
      json(landmarks, conv),
      {.dim = kDim, .heads = 2, .lrpe = false, .causal = false, .max_positions = kTime});
}

ForwardContext whole() {
  return contexts(kTime, false)[0].second;
}

at::Tensor segment_means(const at::Tensor& x, std::int64_t landmarks) {
  const std::int64_t n = x.size(0);
  const std::int64_t m = std::min(landmarks, n);
  std::vector<at::Tensor> all;
  for (std::int64_t segment = 0; segment < m; ++segment) {
    at::Tensor sum = at::zeros_like(x[0]);
    double count = 0;
    for (std::int64_t t = 0; t < n; ++t) {
      if (t * m / n == segment) {
        sum = sum + x[t];
        ++count;
      }
    }
    all.push_back(sum / count);
  }
  return at::stack(all);
}

at::Tensor pseudo_inverse(const at::Tensor& a) {
  const at::Tensor identity = at::eye(a.size(0), at::kDouble);
  at::Tensor z = a.t() / (a.sum(0).max() * a.sum(1).max());
  for (int i = 0; i < 6; ++i) {
    const at::Tensor az = at::mm(a, z);
    z = 0.25 * at::mm(z, 13 * identity - at::mm(az, 15 * identity - at::mm(az, 7 * identity - az)));
  }
  return z;
}

Plain plain(Attention& attention, std::int64_t landmarks, std::int64_t conv) {
  return {.head = [=, &attention](const at::Tensor& query, const at::Tensor& key,
                                  const at::Tensor& v, const Place& place) {
    const double scale = std::pow(12.0, -0.25);
    const at::Tensor q = query * scale, k = key * scale;
    const at::Tensor ql = segment_means(q, landmarks), kl = segment_means(k, landmarks);
    const auto soft = [](const at::Tensor& a, const at::Tensor& b) {
      return at::softmax(at::mm(a, b.t()), -1);
    };
    at::Tensor y =
        at::mm(soft(q, kl), at::mm(pseudo_inverse(soft(ql, kl)), at::mm(soft(ql, k), v)));
    if (conv > 0) {
      const at::Tensor weight =
          attention.named_parameters()["landmark_conv.weight"].to(at::kDouble)[place.head];
      std::vector<at::Tensor> sums;
      for (std::int64_t t = 0; t < v.size(0); ++t) {
        at::Tensor sum = at::zeros_like(v[0]);
        for (std::int64_t i = 0; i < conv; ++i) {
          const std::int64_t from = t + i - conv / 2;
          if (from >= 0 && from < v.size(0)) {
            sum = sum + weight[0][i][0] * v[from];
          }
        }
        sums.push_back(sum);
      }
      y = y + at::stack(sums);
    }
    return y;
  }};
}

TEST(Nystromformer, AgreesWithLoopsForwardAndBackward) {
  for (const auto& [landmarks, conv] : {std::pair(1, 0), std::pair(4, 0), std::pair(4, 5),
                                        std::pair(7, 1), std::pair(7, 25), std::pair(128, 3)}) {
    const auto attention = make(landmarks, conv);
    for (const auto& [name, context] : contexts(kTime, false)) {
      expect_as_plain(*attention, plain(*attention, landmarks, conv), some_input(3, kTime, kDim),
                      context, json(landmarks, conv) + name);
    }
  }
}

// The scale of the pseudo-inverse is each matrix's own.
TEST(Nystromformer, DoesNotSeePaddingNorTheRestOfTheBatch) {
  for (const auto& [landmarks, conv] : {std::pair(6, 0), std::pair(8, 5), std::pair(128, 0)}) {
    const auto attention = make(landmarks, conv);
    expect_padding_unseen(*attention, whole(), kTime, kDim);
    const at::NoGradGuard no_gradients;
    const at::Tensor x = some_input(2, kTime, kDim);
    const at::Tensor louder = at::cat({x.narrow(0, 0, 1), x.narrow(0, 1, 1) * 30});
    EXPECT_LT(relative_error(attention->forward(louder, whole(), nullptr).narrow(0, 0, 1),
                             attention->forward(x, whole(), nullptr).narrow(0, 0, 1)),
              1e-6);
  }
}

TEST(Nystromformer, IsCloseInHalfPrecision) {
  expect_half_close(*make(5, 3), whole(), kTime, kDim);
}

TEST(Nystromformer, HasNoLrpeAndAConvolutionOnlyWhereAskedFor) {
  const auto without = make(5, 0);
  EXPECT_EQ(without->named_parameters().size(), 8U);
  EXPECT_EQ(without->named_buffers().size(), 0U);
  const auto with = make(5, 35);
  EXPECT_EQ(with->named_parameters().size(), 9U);
  EXPECT_EQ(with->named_parameters()["landmark_conv.weight"].sizes(),
            (std::vector<std::int64_t>{2, 1, 35, 1}));
}

TEST(Nystromformer, RefusesAnEvenConvolutionInOneLine) {
  EXPECT_THAT(faults_of_settings(json(5, 3)), testing::IsEmpty());
  EXPECT_THAT(faults_of_settings(json(5, 4)),
              testing::ElementsAre("model.early.conv: expected 0 or an odd number, got 4"));
}

}  // namespace
}  // namespace transnormer::test
