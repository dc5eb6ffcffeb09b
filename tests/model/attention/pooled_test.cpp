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

std::string json(std::int64_t stride) {
  return R"({"attention": "pooled", "stride": )" + std::to_string(stride) + "}";
}

std::shared_ptr<Attention> make(std::int64_t stride, double dropout = 0) {
  return make_started(json(stride), {.dim = kDim,
                                     .heads = 2,
                                     .lrpe = false,
                                     .dropout = dropout,
                                     .causal = false,
                                     .max_positions = kTime});
}

ForwardContext whole() {
  return contexts(kTime, false)[0].second;
}

at::Tensor means(const at::Tensor& x, std::int64_t stride) {
  std::vector<at::Tensor> all;
  for (std::int64_t first = 0; first < x.size(0); first += stride) {
    at::Tensor sum = at::zeros_like(x[0]);
    const std::int64_t end = std::min(first + stride, x.size(0));
    for (std::int64_t t = first; t < end; ++t) {
      sum = sum + x[t];
    }
    all.push_back(sum / static_cast<double>(end - first));
  }
  return at::stack(all);
}

TEST(Pooled, AgreesWithLoopsForwardAndBackward) {
  for (const std::int64_t stride : {1, 4, 7, 100}) {
    const auto attention = make(stride);
    const Plain plain{
        .head = [=](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Place&) {
          return softmax_of_seen(q, means(k, stride), means(v, stride), 1 / std::sqrt(12.0),
                                 [](std::int64_t, std::int64_t) { return true; });
        }};
    for (const auto& [name, context] : contexts(kTime, false)) {
      expect_as_plain(*attention, plain, some_input(3, kTime, kDim), context, json(stride) + name);
    }
  }
}

TEST(Pooled, DoesNotSeePadding) {
  expect_padding_unseen(*make(4), whole(), kTime, kDim);
  expect_padding_unseen(*make(5), whole(), kTime, kDim);
}

TEST(Pooled, IsCloseInHalfPrecision) {
  expect_half_close(*make(4), whole(), kTime, kDim);
}

TEST(Pooled, DropsWeightsByTheirPlace) {
  const auto attention = make(3, 0.3);
  expect_drops_by_place(*attention, whole(), kTime, kDim);
  expect_drops_share(*attention, whole(), 0.3, 3, kTime, kDim);
}

TEST(Pooled, HasNoLrpeAndNoOtherTensors) {
  EXPECT_EQ(make(4)->named_parameters().size(), 8U);
  EXPECT_EQ(make(4)->named_buffers().size(), 0U);
}

TEST(Pooled, IsRefusedInACausalModelAndWithoutAStride) {
  ModelConfig config = small_config(ModelVariant::t2);
  config.variant = ModelVariant::custom;
  config.early = attention_config(json(4));
  const auto faults = unfit_attentions(config, {.vocab_size = kWords, .max_positions = 16});
  ASSERT_EQ(faults.size(), 1U);
  EXPECT_TRUE(faults[0].starts_with("model.early: the attention \"pooled\" cannot be causal"));
  try {
    static_cast<void>(attention_config(json(0)));
    FAIL() << "was taken";
  } catch (const UserError& error) {
    ASSERT_EQ(error.faults().size(), 1U);
    EXPECT_THAT(error.faults()[0], testing::HasSubstr("model.early.stride: expected an integer"));
  }
}

}  // namespace
}  // namespace transnormer::test
