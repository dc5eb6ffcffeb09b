#include "train/gradient_statistics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "optim/gradients.h"

namespace transnormer {
namespace {

// Two layers' worth of names with gradients that are easy to add up.
struct GradientStatisticsTest : testing::Test {
  std::vector<NamedTensor> parameters{{"embed.weight", at::zeros({4})},
                                      {"layers.0.attn.q_proj.weight", at::zeros({2, 2})},
                                      {"layers.0.attn.q_proj.bias", at::zeros({2})},
                                      {"layers.0.attn.out_proj.weight", at::zeros({2})},
                                      {"layers.0.attn.lrpe.theta", at::zeros({1})},
                                      {"layers.1.ffn.up_proj.weight", at::zeros({3})},
                                      {"layers.10.ffn.gate_proj.bias", at::zeros({1})}};
  std::vector<at::Tensor> gradients{at::tensor({0.0F, 0.0F, 0.0F, 6.0F}),
                                    at::tensor({2.0F, 0.0F, 0.0F, 0.0F}).view({2, 2}),
                                    at::tensor({0.0F, 1.0F}),
                                    at::tensor({2.0F, 0.0F}),
                                    at::tensor({4.0F}),
                                    at::tensor({0.0F, 0.0F, 0.0F}),
                                    at::tensor({8.0F})};
  std::map<std::string, RunningMoments> moments;
  GradientStatistics statistics{parameters, groups()};

  [[nodiscard]] std::vector<ParameterGroup> groups() const {
    const auto of = [&](std::vector<std::size_t> indices) {
      std::vector<at::Tensor> tensors{at::zeros({5})};  // frozen: no gradient comes of it
      for (const std::size_t i : indices) {
        tensors.push_back(parameters[i].tensor);
      }
      return tensors;
    };
    return {{"layers.0", of({1, 2, 3, 4})}, {"layers.0.q_proj", of({1, 2})},
            {"layers.0.out_proj", of({3})}, {"layers.1", of({5})},
            {"layers.1.ffn", of({5})},      {"layers.10", of({6})},
            {"layers.10.ffn", of({6})}};
  }

  std::map<std::string, log::GradientStats> measure() {
    return statistics.measure(gradients, gradient_norms(gradients), moments);
  }
};

TEST_F(GradientStatisticsTest, GroupsAreTheWholeAndThoseDeclared) {
  std::vector<std::string> names;
  for (const auto& [name, stats] : measure()) {
    names.push_back(name);
  }
  EXPECT_THAT(names,
              testing::ElementsAre("all", "layers.0", "layers.0.out_proj", "layers.0.q_proj",
                                   "layers.1", "layers.1.ffn", "layers.10", "layers.10.ffn"));
}

TEST_F(GradientStatisticsTest, NormsAndZeroSharesAreOfTheGroupsElements) {
  const auto stats = measure();
  EXPECT_DOUBLE_EQ(stats.at("layers.0.q_proj").norm, std::sqrt(5.0));
  EXPECT_DOUBLE_EQ(stats.at("layers.0.q_proj").zero_share, 4.0 / 6);
  EXPECT_DOUBLE_EQ(stats.at("layers.0").norm, 5);
  EXPECT_DOUBLE_EQ(stats.at("layers.0").zero_share, 5.0 / 9);
  EXPECT_DOUBLE_EQ(stats.at("layers.1").zero_share, 1);
  EXPECT_DOUBLE_EQ(stats.at("all").norm, std::sqrt(36.0 + 25 + 64));
}

TEST_F(GradientStatisticsTest, MeanAndRelativeDeviationRunOverTheIterations) {
  EXPECT_EQ(measure().at("layers.10").relative_std, 0);
  gradients[6].fill_(2);
  const auto stats = measure();
  // Norms 8 and 2: mean 5, deviation 3.
  EXPECT_DOUBLE_EQ(stats.at("layers.10").mean, 5);
  EXPECT_DOUBLE_EQ(stats.at("layers.10").relative_std, 0.6);
  EXPECT_EQ(moments.at("layers.10").count, 2);
}

TEST_F(GradientStatisticsTest, SamplesAreEvenlySpacedOverTheGroup) {
  EXPECT_THAT(statistics.sample(gradients, 100).at("layers.0.q_proj"),
              testing::ElementsAre(2, 0, 0, 0, 0, 1));
  EXPECT_THAT(statistics.sample(gradients, 3).at("layers.0"),
              testing::ElementsAre(2, 0, 2));  // elements 0, 3 and 6 of 9
}

}  // namespace
}  // namespace transnormer
