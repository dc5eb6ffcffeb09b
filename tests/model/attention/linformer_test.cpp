#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "model/attention/against_loops.h"
#include "model/models.h"
#include "util/error.h"

namespace transnormer::test {
namespace {

constexpr std::int64_t kDim = 24, kTime = 19;

std::string json(std::int64_t rank) {
  return R"({"attention": "linformer", "rank": )" + std::to_string(rank) + "}";
}

std::shared_ptr<Attention> make(std::int64_t rank, std::int64_t places, double dropout = 0) {
  return make_started(json(rank), {.dim = kDim,
                                   .heads = 2,
                                   .lrpe = false,
                                   .dropout = dropout,
                                   .causal = false,
                                   .max_positions = places});
}

ForwardContext whole() {
  return contexts(kTime, false)[0].second;
}

// By the first columns.
at::Tensor projected(Attention& attention, const at::Tensor& x, std::int64_t head) {
  const at::Tensor all = attention.named_parameters()["projection"].to(at::kDouble)[head];
  std::vector<at::Tensor> sums;
  for (std::int64_t r = 0; r < all.size(0); ++r) {
    sums.push_back(at::mv(x.t(), all[r].slice(0, 0, x.size(0))));
  }
  return at::stack(sums);
}

TEST(Linformer, AgreesWithLoopsForwardAndBackward) {
  for (const auto& [rank, places] : {std::pair(1, 19), std::pair(5, 19), std::pair(19, 40)}) {
    const auto attention = make(rank, places);
    const Plain plain{.head = [&](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                  const Place& place) {
      return softmax_of_seen(q, projected(*attention, k, place.head),
                             projected(*attention, v, place.head), 1 / std::sqrt(12.0),
                             [](std::int64_t, std::int64_t) { return true; });
    }};
    for (const auto& [name, context] : contexts(kTime, false)) {
      expect_as_plain(*attention, plain, some_input(3, kTime, kDim), context, json(rank) + name);
    }
  }
}

TEST(Linformer, DoesNotSeePadding) {
  expect_padding_unseen(*make(6, kTime), whole(), kTime, kDim);
}

TEST(Linformer, IsCloseInHalfPrecision) {
  expect_half_close(*make(6, 30), whole(), kTime, kDim);
}

TEST(Linformer, DropsWeightsByTheirPlace) {
  expect_drops_by_place(*make(6, kTime, 0.3), whole(), kTime, kDim);
}

TEST(Linformer, HasOneProjectionAndNoLrpe) {
  const auto attention = make_attention(
      attention_config(json(5)),
      AttentionSettings{
          .dim = kDim, .heads = 2, .lrpe = false, .causal = false, .max_positions = 200});
  EXPECT_EQ(attention->named_parameters().size(), 9U);
  EXPECT_EQ(attention->named_buffers().size(), 0U);
  const at::Tensor projection = attention->named_parameters()["projection"];
  EXPECT_EQ(projection.sizes(), (std::vector<std::int64_t>{2, 5, 200}));
  dynamic_cast<Initializable&>(*attention).initialize(Initializer(1), "");
  EXPECT_NEAR(projection.std().item<double>(), 0.02, 0.002);
  EXPECT_NEAR(projection.mean().item<double>(), 0, 0.002);
}

TEST(Linformer, RefusesALongerSequenceInOneLineButNotOneThatPaddingMakesLong) {
  const at::NoGradGuard no_gradients;
  const auto attention = make(5, kTime);
  const at::Tensor x = some_input(2, kTime + 3, kDim);
  ForwardContext context = whole();
  context.visibility.padding = (at::arange(kTime + 3) >= kTime).expand({2, -1}).contiguous();
  EXPECT_NO_THROW(static_cast<void>(attention->forward(x, context, nullptr)));
  context.visibility.padding.reset();
  try {
    static_cast<void>(attention->forward(x, context, nullptr));
    FAIL() << "was taken";
  } catch (const UserError& error) {
    EXPECT_THAT(error.faults(),
                testing::ElementsAre("data.tokens_per_sample: expected at least 22, the tokens of "
                                     "a sequence, since the attention \"linformer\" has a column "
                                     "for each place, got 19"));
  }
}

TEST(Linformer, RefusesARankBeyondTheTokensOfASample) {
  EXPECT_THAT(faults_of_settings(json(16)), testing::IsEmpty());
  EXPECT_THAT(faults_of_settings(json(17)),
              testing::ElementsAre(
                  "model.early.rank: expected at most data.tokens_per_sample (16), got 17"));
}

}  // namespace
}  // namespace transnormer::test
