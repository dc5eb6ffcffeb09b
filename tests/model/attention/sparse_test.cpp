#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "model/attention/against_loops.h"
#include "model/models.h"
#include "util/error.h"

namespace transnormer::test {
namespace {

constexpr std::int64_t kDim = 24;

struct Case {
  std::int64_t time, window, stride;
  [[nodiscard]] std::string json() const {
    return R"({"attention": "sparse", "window": )" + std::to_string(window) + R"(, "stride": )" +
           std::to_string(stride) + "}";
  }
  [[nodiscard]] bool sees(std::int64_t i, std::int64_t j, bool causal) const {
    const std::int64_t distance = causal ? i - j : std::abs(i - j);
    return distance >= 0 && (distance < window || distance % stride == 0);
  }
};

const std::vector<Case> kCases{{21, 4, 5},   {37, 3, 2},  {19, 1, 1},
                               {23, 64, 64}, {67, 33, 7}, {13, 5, 50}};

std::shared_ptr<Attention> make(const Case& c, bool lrpe, double dropout = 0) {
  return make_started(c.json(), {.dim = kDim, .heads = 2, .lrpe = lrpe, .dropout = dropout});
}

Plain plain(const Case& c, bool causal) {
  return {.head = [=](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Place&) {
    return softmax_of_seen(q, k, v, 1 / std::sqrt(12.0),
                           [&](std::int64_t i, std::int64_t j) { return c.sees(i, j, causal); });
  }};
}

TEST(Sparse, AgreesWithLoopsForwardAndBackward) {
  for (const Case& c : kCases) {
    for (const bool causal : {true, false}) {
      const auto attention = make(c, c.time % 2 == 1);
      for (const auto& [name, context] : contexts(c.time, causal)) {
        expect_as_plain(*attention, plain(c, causal), some_input(3, c.time, kDim), context,
                        c.json() + name + (causal ? ", causal" : ""));
      }
    }
  }
}

// Each pair once: a row's weights sum up to 1, and are where they should be.
TEST(Sparse, WeighsWhatItSeesOnceAndNothingElse) {
  for (const Case& c : kCases) {
    for (const bool causal : {true, false}) {
      const at::Tensor weights =
          make(c, true)->weights(some_input(3, c.time, kDim), contexts(c.time, causal)[0].second);
      EXPECT_LT((weights.sum(-1) - 1).abs().max().item<double>(), 1e-5);
      for (std::int64_t i = 0; i < c.time; ++i) {
        for (std::int64_t j = 0; j < c.time; ++j) {
          EXPECT_EQ(weights[1][0][i][j].item<float>() > 0, c.sees(i, j, causal))
              << c.json() << ' ' << i << ' ' << j;
        }
      }
    }
  }
}

TEST(Sparse, SeesNeitherTheFutureNorPadding) {
  for (const Case& c : {kCases[0], kCases[4]}) {
    const auto attention = make(c, true);
    expect_causal(*attention, c.time, kDim);
    for (const auto& [name, context] : {contexts(c.time, true)[0], contexts(c.time, false)[0]}) {
      expect_padding_unseen(*attention, context, c.time, kDim);
    }
  }
}

TEST(Sparse, DecodesAsItReadsWholeSequences) {
  for (const Case& c : kCases) {
    expect_decodes(*make(c, true), c.time, kDim);
  }
}

TEST(Sparse, IsCloseInHalfPrecision) {
  expect_half_close(*make(kCases[0], true), {}, 21, kDim);
}

// Scores of this size would overflow without the maximum.
TEST(Sparse, StaysFiniteWhereScoresAreLarge) {
  const Case c = kCases[0];
  const auto attention = make(c, false);
  const at::Tensor x = (some_input(2, c.time, kDim) * 60).requires_grad_();
  const at::Tensor y = attention->forward(x, {}, nullptr);
  y.square().sum().backward();
  EXPECT_TRUE(at::isfinite(y).all().item<bool>());
  EXPECT_TRUE(at::isfinite(x.grad()).all().item<bool>());
}

TEST(Sparse, DropsWeightsByTheirPlace) {
  for (const Case& c : {kCases[0], kCases[4], Case{35, 40, 3}}) {
    for (const bool causal : {true, false}) {
      const ForwardContext context = contexts(c.time, causal)[0].second;
      const auto attention = make(c, true, 0.3);
      expect_drops_by_place(*attention, context, c.time, kDim);
      expect_drops_share(*attention, context, 0.3, 1, c.time, kDim);
    }
  }
}

// With the masks that the weights show.
TEST(Sparse, WithDropoutAgreesWithLoopsForwardAndBackward) {
  const Case c = kCases[0];
  const auto attention = make(c, false, 0.3);
  const at::Tensor x = some_input(3, c.time, kDim);
  for (const bool causal : {true, false}) {
    ForwardContext context = contexts(c.time, causal)[0].second;
    const at::Tensor all = attention->weights(x, context);
    context.training = true;
    const at::Tensor mask = (attention->weights(x, context) / all).nan_to_num(0).to(at::kDouble);
    const Plain dropping{.head = [&](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                     const Place& place) {
      const at::Tensor weights = plain(c, causal).head(q, k, at::eye(c.time, at::kDouble), place);
      return at::matmul(weights * mask[place.sample][place.head], v);
    }};
    expect_as_plain(*attention, dropping, x, context, causal ? "causal" : "both ways");
  }
}

TEST(Sparse, CountsTheOperationsOfWhatItSees) {
  for (const Case& c : kCases) {
    for (const bool causal : {true, false}) {
      double pairs = 0;
      for (std::int64_t i = 0; i < c.time; ++i) {
        for (std::int64_t j = 0; j < c.time; ++j) {
          pairs += c.sees(i, j, causal) ? 1 : 0;
        }
      }
      const auto attention = make_started(c.json(), {.dim = kDim, .heads = 2, .causal = causal});
      EXPECT_NEAR(attention->flops_per_token(c.time),
                  4 * kDim * pairs / static_cast<double>(c.time), 1e-6);
    }
  }
}

TEST(Sparse, RefusesLengthsBelowOne) {
  for (const char* key : {"window", "stride"}) {
    try {
      static_cast<void>(
          attention_config(R"({"attention": "sparse", ")" + std::string(key) + R"(": 0})"));
      FAIL() << "was taken";
    } catch (const UserError& error) {
      ASSERT_EQ(error.faults().size(), 1U);
      EXPECT_THAT(error.faults()[0],
                  testing::HasSubstr("model.early." + std::string(key) + ": expected an integer"));
    }
  }
}

}  // namespace
}  // namespace transnormer::test
