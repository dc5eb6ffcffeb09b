#include "analyze/rank.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "analyze/recorder.h"
#include "analyze/subjects.h"
#include "model/models.h"

namespace transnormer {
namespace {

TEST(Rank, OfMatricesOfKnownRank) {
  const Ranks identity = ranks_of(at::eye(12, at::kDouble).mul(5));
  EXPECT_EQ(identity.rank, 12);
  EXPECT_NEAR(identity.effective_rank, 12, 1e-9);
  const Ranks uniform = ranks_of(at::ones({12, 12}, at::kDouble));
  EXPECT_EQ(uniform.rank, 1);
  EXPECT_NEAR(uniform.effective_rank, 1, 1e-6);
  for (const std::int64_t rank : {2, 5}) {
    const at::Tensor q = at::randn({12, rank}, at::kDouble);
    const at::Tensor k = at::randn({12, rank}, at::kDouble);
    const Ranks product = ranks_of(at::mm(q, k.t()));
    EXPECT_EQ(product.rank, rank);
    EXPECT_GT(product.effective_rank, 1);
    EXPECT_LE(product.effective_rank, static_cast<double>(rank));
    EXPECT_EQ(ranks_of(at::mm(q, k.t()).tril()).rank, 12);  // the causal mask restores it
  }
  EXPECT_EQ(ranks_of(at::zeros({3, 3}, at::kDouble)).rank, 0);
}

TEST(Rank, EffectiveRankIsTheExponentialOfTheEntropy) {
  const Ranks found = ranks_of(at::diag(at::tensor({3.0, 1.0}, at::kDouble)));
  EXPECT_NEAR(found.effective_rank, std::exp(-(0.75 * std::log(0.75) + 0.25 * std::log(0.25))),
              1e-12);
}

TEST(Rank, MatricesAreProductsOrTheirSoftmaxOverWhatIsSeen) {
  const at::Tensor q = at::randn({7, 3}, at::kDouble);
  const at::Tensor k = at::randn({7, 3}, at::kDouble);
  for (const bool softmax : {false, true}) {
    for (const std::int64_t window : {0, 7, 2}) {
      const at::Tensor matrix = matrix_of(q, k, softmax, 0.3, window);
      for (std::int64_t i = 0; i < 7; ++i) {
        double sum = 0;
        const auto seen = [&](std::int64_t j) { return window == 0 || (j <= i && i - j < window); };
        const auto value = [&](std::int64_t j) {
          const double product = q[i].dot(k[j]).item<double>();
          return !seen(j) ? 0 : softmax ? std::exp(0.3 * product) : product;
        };
        for (std::int64_t j = 0; j < 7; ++j) {
          sum += value(j);
        }
        for (std::int64_t j = 0; j < 7; ++j) {
          EXPECT_NEAR(matrix[i][j].item<double>(), softmax ? value(j) / sum : value(j), 1e-12);
        }
      }
    }
  }
}

TEST(Rank, OfALinearLayerGrowsWithItsKeysAndIsFullUnderTheMask) {
  const ModelConfig config = test::small_config(ModelVariant::t2);  // 12 features a head
  const Subject subject = test::make_subject(config, 1, 40);
  const std::vector<RankRow> rows = measure_rank(subject, {.layers = {2}, .heads = {1}});
  // Widths 1, 2, 4, 8, 12; without a mask, and with windows of 40 and 20.
  ASSERT_EQ(rows.size(), 15);
  for (const RankRow& row : rows) {
    EXPECT_EQ(row.layer, 2);
    EXPECT_EQ(row.head, 1);
    ASSERT_TRUE(row.key_dim);
    EXPECT_LE(row.effective_rank, static_cast<double>(row.rank) + 1e-9);
    if (row.masked) {
      EXPECT_TRUE(row.window == 40 || row.window == 20);
    } else {
      EXPECT_EQ(row.window, 40);
      EXPECT_EQ(row.rank, *row.key_dim);
    }
  }
  // The widest one agrees with the layer's own matrix.
  const auto records = record_pass(*subject.model, subject.windows[0], false);
  const Ranks own = ranks_of(weights_of(*subject.model, 2, records[2])[1]);
  const RankRow& widest = rows[13];
  EXPECT_EQ(*widest.key_dim, 12);
  EXPECT_TRUE(widest.masked);
  EXPECT_EQ(widest.window, 40);
  EXPECT_EQ(widest.rank, own.rank);
  EXPECT_NEAR(widest.effective_rank, own.effective_rank, 1e-3);
}

TEST(Rank, OfASoftmaxLayerAgreesWithItsOwnMatrix) {
  const ModelConfig config = test::small_config(ModelVariant::transformer);
  const Subject subject = test::make_subject(config, 1, 24);
  const std::vector<RankRow> rows = measure_rank(subject, {.layers = {1}, .heads = {0}});
  const auto records = record_pass(*subject.model, subject.windows[0], false);
  const Ranks own = ranks_of(weights_of(*subject.model, 1, records[1])[0]);
  const RankRow& widest = rows.back();
  EXPECT_EQ(*widest.key_dim, 12);
  EXPECT_TRUE(widest.masked);
  EXPECT_NEAR(widest.effective_rank, own.effective_rank, 1e-3);
}

}  // namespace
}  // namespace transnormer
