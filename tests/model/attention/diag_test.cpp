#include "model/attention/diag.h"

#include <gtest/gtest.h>

#include <cmath>

#include "model/attention/key_value_cache.h"
#include "model/attention/registry.h"
#include "model/models.h"

namespace transnormer::test {
namespace {

constexpr std::int64_t kBlock = 8;

std::shared_ptr<Attention> make_diag(ScoreKind score) {
  auto attention = make_attention(DiagAttentionConfig{.score = score, .block = kBlock},
                                  AttentionSettings{.dim = 24, .heads = 2, .lrpe = true});
  at::NoGradGuard no_grad;
  for (const auto& tensor : attention->parameters()) {
    tensor.copy_(at::sin(at::arange(tensor.numel()).view_as(tensor) * 1.7));
  }
  for (const auto& buffer : attention->buffers()) {
    buffer.fill_(1 / std::sqrt(12.0));
  }
  return attention;
}

at::Tensor inputs(std::int64_t time) {
  return at::cos(at::arange(time * 24).view({1, time, 24}) * 0.37);
}

// Two sequences that differ in one block agree in all others, whatever their place.
TEST(DiagAttention, SeesItsOwnBlockOnly) {
  at::NoGradGuard no_grad;
  for (const auto score : {ScoreKind::softmax, ScoreKind::relu}) {
    const auto attention = make_diag(score);
    const at::Tensor x = inputs(3 * kBlock);
    at::Tensor other = x.clone();
    other.narrow(1, kBlock, kBlock).mul_(-2);
    const at::Tensor difference =
        (attention->forward(x, {}, nullptr) - attention->forward(other, {}, nullptr)).abs();
    EXPECT_EQ(difference.narrow(1, 0, kBlock).max().item<double>(), 0);
    EXPECT_EQ(difference.narrow(1, 2 * kBlock, kBlock).max().item<double>(), 0);
    EXPECT_GT(difference.narrow(1, kBlock, kBlock).amax(2).min().item<double>(), 1e-3);
  }
}

// Positions count inside the block, so equal blocks give equal outputs.
TEST(DiagAttention, CountsPositionsInsideTheBlock) {
  at::NoGradGuard no_grad;
  const auto attention = make_diag(ScoreKind::softmax);
  const at::Tensor y = attention->forward(inputs(kBlock).repeat({1, 3, 1}), {}, nullptr);
  EXPECT_LT(relative_error(y.narrow(1, 2 * kBlock, kBlock), y.narrow(1, 0, kBlock)), 1e-6);
}

TEST(DiagAttention, EmptiesItsCacheAtEachBlockStart) {
  at::NoGradGuard no_grad;
  const auto attention = make_diag(ScoreKind::softmax);
  const auto state = attention->make_state(1);
  const auto& cache = static_cast<const KeyValueCache&>(*state);
  for (std::int64_t t = 0; t < 3 * kBlock; ++t) {
    ForwardContext context;
    context.first_position = t;
    EXPECT_EQ(cache.size(), t % kBlock);
    [[maybe_unused]] const at::Tensor y = attention->forward(inputs(1), context, state.get());
  }
}

}  // namespace
}  // namespace transnormer::test
