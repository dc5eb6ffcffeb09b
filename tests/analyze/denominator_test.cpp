// Measurements of an attention that can be had with a denominator and without.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "analyze/gradients.h"
#include "analyze/plain_linear.h"
#include "analyze/rank.h"
#include "analyze/scale.h"
#include "analyze/subjects.h"
#include "model/models.h"

namespace transnormer {
namespace {

using test::PlainLinearConfig;

ModelConfig linear_model() {
  ModelConfig config = test::small_config(ModelVariant::t2);
  config.variant = ModelVariant::custom;
  config.lrpe = false;
  config.early = config.late = PlainLinearConfig{};
  return config;
}

TEST(Denominator, BoundsAreThoseOfTheScores) {
  const ModelConfig config = linear_model();
  EXPECT_EQ(weighting_of(config, 0), Weighting::linear);
  const Subject subject = test::make_subject(config);
  const LayerGradients found = measure_gradients(subject, {.layers = {1}}).at(0);
  double least = std::numeric_limits<double>::infinity();
  double largest = 0;
  std::vector<double> scores;
  for (const Window& window : subject.windows) {
    const auto records = record_pass(*subject.model, window, false);
    const AttentionInside& inside = records[1].attentions.at(0).inside;
    for (std::int64_t head = 0; head < 2; ++head) {
      for (std::int64_t i = 0; i < 20; ++i) {
        double sum = 0;
        std::vector<double> row;
        for (std::int64_t j = 0; j <= i; ++j) {
          row.push_back(
              inside.scored_q[0][i][head].dot(inside.scored_k[0][j][head]).item<double>());
          sum += row.back();
        }
        for (const double s : row) {
          least = std::min(least, s);
          scores.push_back(s);
          largest = std::max(largest, s / sum * (1 - s / sum) / s);
        }
      }
    }
  }
  EXPECT_NEAR(found.bound, 1 / (4 * least), 1e-4 * found.bound);
  EXPECT_NEAR(found.largest, largest, 1e-4 * largest);
  EXPECT_LE(found.largest, found.bound);
  std::sort(scores.begin(), scores.end());
  EXPECT_NEAR(found.median_bound, 1 / (4 * scores[scores.size() / 2]), 0.02 * found.median_bound);
}

TEST(Denominator, ScaleHasARowWithAndOneWithout) {
  const ModelConfig config = linear_model();
  const Subject subject = test::make_subject(config);
  const std::vector<ScaleRow> rows = measure_scale(subject, test::everything(config));
  ASSERT_EQ(rows.size(), 6);
  EXPECT_EQ(rows[0].denominator, true);
  EXPECT_EQ(rows[1].denominator, false);
  EXPECT_TRUE(rows[0].as_configured);
  // Weights that sum up to 1 make means of the values; scores above 0 make sums.
  EXPECT_GT(rows[1].output_rms, 2 * rows[0].output_rms);
  EXPECT_GT(rows[1].output_max, rows[0].output_max);
}

TEST(Denominator, RanksAreThoseOfProducts) {
  const ModelConfig config = linear_model();
  for (const RankRow& row : measure_rank(test::make_subject(config, 1, 30), {.layers = {0}})) {
    if (!row.masked) {
      EXPECT_EQ(row.rank, *row.key_dim);
    }
  }
}

}  // namespace
}  // namespace transnormer
