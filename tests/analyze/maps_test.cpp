#include "analyze/maps.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "analyze/subjects.h"
#include "model/models.h"

namespace transnormer {
namespace {

TEST(Maps, CellsAreSharesOfARow) {
  const AttentionMap map = map_of(at::tensor({2.0F, 0.0F, -1.0F, 3.0F}).view({2, 2}));
  EXPECT_EQ(map.length, 2);
  EXPECT_EQ(map.step, 1);
  EXPECT_TRUE(
      at::allclose(map.cells, at::tensor({1.0, 0.0, 0.25, 0.75}, at::kDouble).view({2, 2})));
  EXPECT_NEAR(map.mean_distance, 0.125, 1e-12);
  EXPECT_NEAR(map.entropy, -(0.25 * std::log(0.25) + 0.75 * std::log(0.75)) / 2, 1e-12);
  EXPECT_EQ(to_csv(map), "query,0,1\n0,1,0\n1,0.25,0.75\n");
}

TEST(Maps, LongOnesAreAveragedOverCells) {
  const at::Tensor weights = at::rand({2001, 2001}) + 0.1;
  const AttentionMap map = map_of(weights);
  EXPECT_EQ(map.step, 3);
  ASSERT_EQ(map.cells.sizes(), (at::IntArrayRef{667, 667}));
  const at::Tensor p = shares(weights);
  const auto mean = [&](std::int64_t row, std::int64_t column) {
    return p.slice(0, 3 * row, 3 * row + 3).slice(1, 3 * column, 3 * column + 3).mean();
  };
  for (const auto& [row, column] : {std::pair{0, 0}, {5, 600}, {666, 2}}) {
    EXPECT_TRUE(at::allclose(map.cells[row][column], mean(row, column)));
  }
  const AttentionMap ragged = map_of(at::ones({1001, 1001}));
  EXPECT_EQ(ragged.cells.size(0), 501);
  EXPECT_TRUE(at::allclose(ragged.cells, at::full({501, 501}, 1.0 / 1001, at::kDouble)));
}

TEST(Maps, ThereIsOneForEachSelectedLayerAndHead) {
  const ModelConfig config = test::small_config(ModelVariant::t2);
  std::string seen;
  for_each_map(test::make_subject(config), {.layers = {0, 2}, .heads = {1}},
               [&](const AttentionMap& map) {
                 seen += map.attention + std::to_string(map.layer) + std::to_string(map.head) + ' ';
                 EXPECT_TRUE(at::allclose(map.cells.sum(1), at::ones({20}, at::kDouble)));
                 const HeatMap picture = heat_map_of(map);
                 EXPECT_EQ(picture.rows, 20);
                 EXPECT_EQ(picture.values.size(), 400);
                 EXPECT_GT(picture.darkest, 0);
                 EXPECT_LE(picture.darkest, 1);
               });
  EXPECT_EQ(seen, "diag01 norm21 ");
}

}  // namespace
}  // namespace transnormer
