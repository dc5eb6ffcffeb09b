#include "optim/gradients.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace transnormer {
namespace {

std::vector<at::Tensor> three_four_twelve() {
  return {at::full({1}, 3.0), at::full({2, 2}, 2.0), at::tensor({0.0F, -12.0F})};
}

TEST(Gradients, NormsAreOfEachTensorAndOfAllTogether) {
  const at::Tensor norms = gradient_norms(three_four_twelve());
  EXPECT_DOUBLE_EQ(norms[0].item<double>(), 3);
  EXPECT_DOUBLE_EQ(norms[1].item<double>(), 4);
  EXPECT_DOUBLE_EQ(norms[2].item<double>(), 12);
  EXPECT_DOUBLE_EQ(global_norm(norms).item<double>(), 13);
}

// What a GPU runs; the same functions of LibTorch are there for the CPU.
TEST(Gradients, TheFusedPathGivesTheSameNormsAndClipsAlike) {
  const std::vector<at::Tensor> gradients = three_four_twelve();
  const at::Tensor norms = fused_gradient_norms(gradients);
  EXPECT_EQ(norms.scalar_type(), at::kDouble);
  EXPECT_TRUE(at::allclose(norms, gradient_norms(gradients)));
  scale_gradients(gradients, 6.5 / global_norm(norms));
  EXPECT_NEAR(gradients[0][0].item<double>(), 1.5, 1e-6);
  EXPECT_NEAR(gradients[1][1][1].item<double>(), 1, 1e-6);
  EXPECT_NEAR(gradients[2][1].item<double>(), -6, 1e-6);
}

TEST(Gradients, TheNormOfManyElementsIsAccurate) {
  const at::Tensor large = at::full({30'000'000}, 1e-3);
  const double expected = std::sqrt(30e6) * static_cast<double>(1e-3F);
  EXPECT_NEAR(global_norm(gradient_norms({large})).item<double>() / expected, 1, 1e-6);
}

TEST(Gradients, TheNormHasTheSameBitsAtAnyNumberOfThreads) {
  const at::Tensor values = at::sin(at::arange(1'000'003, at::kFloat));
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const double one = gradient_norms({values}).item<double>();
  at::set_num_threads(3);
  const double three = gradient_norms({values}).item<double>();
  at::set_num_threads(threads);
  EXPECT_EQ(one, three);
  EXPECT_NEAR(one, values.to(at::kDouble).norm().item<double>(), 1e-3);
}

TEST(Gradients, ASingleNonFiniteElementMakesTheNormNonFinite) {
  for (const double bad :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    std::vector<at::Tensor> gradients = three_four_twelve();
    gradients[1][1][0] = bad;
    EXPECT_FALSE(std::isfinite(global_norm(gradient_norms(gradients)).item<double>()));
  }
}

TEST(Gradients, ClippingScalesAllToTheLargestNormAllowed) {
  std::vector<at::Tensor> gradients = three_four_twelve();
  clip_gradients(gradients, global_norm(gradient_norms(gradients)), 6.5);
  EXPECT_NEAR(gradients[0][0].item<double>(), 1.5, 1e-6);
  EXPECT_NEAR(gradients[2][1].item<double>(), -6, 1e-6);
}

TEST(Gradients, ClippingLeavesSmallerNormsAndSwitchedOffAlone) {
  for (const double max_norm : {0.0, 14.0}) {
    std::vector<at::Tensor> gradients = three_four_twelve();
    clip_gradients(gradients, global_norm(gradient_norms(gradients)), max_norm);
    EXPECT_EQ(gradients[0][0].item<double>(), 3);
  }
}

TEST(Gradients, ClippingLeavesZeroGradientsZero) {
  const std::vector<at::Tensor> gradients{at::zeros({3})};
  clip_gradients(gradients, global_norm(gradient_norms(gradients)), 1);
  EXPECT_TRUE(at::equal(gradients[0], at::zeros({3})));
}

}  // namespace
}  // namespace transnormer
