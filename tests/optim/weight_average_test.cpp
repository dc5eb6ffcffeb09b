#include "optim/weight_average.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "optim/plain_updates.h"

namespace transnormer::test {
namespace {

TEST(WeightAverage, AgreesWithAPlainLoopOverManyUpdates) {
  for (const double decay : {0.3, 0.9, 0.999}) {
    const NamedTensor weight = parameter("w", start_of({5, 7}));
    const NamedTensor other = parameter("v", start_of({3}));
    const FlatParameters flat({weight, other});
    std::vector<double> plain = numbers_of(weight.tensor);
    WeightAverage average(flat, decay);
    for (int update = 0; update < 50; ++update) {
      for (int i = 0; i < 35; ++i) {
        weight.tensor.detach().view({-1})[i] = chirp(update, i);
        const auto value = static_cast<float>(chirp(update, i));
        plain[static_cast<std::size_t>(i)] +=
            (1 - decay) * (value - plain[static_cast<std::size_t>(i)]);
      }
      average.update();
    }
    const std::vector<NamedTensor> named = average.named({weight, other});
    EXPECT_EQ(named[0].name, "w");
    EXPECT_EQ(named[0].tensor.sizes(), weight.tensor.sizes());
    const std::vector<double> values = numbers_of(named[0].tensor);
    for (std::size_t i = 0; i < plain.size(); ++i) {
      EXPECT_NEAR(values[i], plain[i], 1e-6) << decay;
    }
    EXPECT_TRUE(at::equal(named[1].tensor, other.tensor));  // did not change
  }
}

TEST(WeightAverage, StartsAsTheWeightsAreAndAgainWhenAsked) {
  const NamedTensor weight = parameter("w", start_of({9}));
  const FlatParameters flat({weight});
  WeightAverage average(flat, 0.5);
  EXPECT_TRUE(at::equal(average.named({weight})[0].tensor, weight.tensor));
  weight.tensor.detach().add_(1);
  EXPECT_FALSE(at::equal(average.named({weight})[0].tensor, weight.tensor));
  average.restart();
  EXPECT_TRUE(at::equal(average.named({weight})[0].tensor, weight.tensor));
}

TEST(WeightAverage, TakesThePlaceOfTheWeightsForAWhileAndGivesTheirBitsBack) {
  const at::Tensor large = at::linspace(-1, 1, (1 << 20) + 77);  // more than is moved at once
  const NamedTensor weight = parameter("w", large);
  const NamedTensor frozen{"f", at::ones({2}), false};
  const FlatParameters flat({weight, frozen});
  const void* memory = weight.tensor.data_ptr();
  WeightAverage average(flat, 0.75);
  weight.tensor.detach().mul_(-3);
  average.update();
  const at::Tensor before = weight.tensor.detach().clone();
  const at::Tensor mean = average.named({weight, frozen})[0].tensor.clone();
  EXPECT_TRUE(average.named({weight, frozen})[1].tensor.is_same(frozen.tensor));
  {
    const auto version = weight.tensor._version();
    const WeightAverage::InPlace in_place(average);
    EXPECT_TRUE(at::equal(weight.tensor, mean));
    EXPECT_FALSE(at::equal(weight.tensor, before));
    EXPECT_EQ(weight.tensor.data_ptr(), memory);
    EXPECT_GT(weight.tensor._version(), version);  // copies of it know that they are old
  }
  EXPECT_TRUE(at::equal(weight.tensor, before));
  EXPECT_TRUE(at::equal(average.named({weight, frozen})[0].tensor, mean));
}

}  // namespace
}  // namespace transnormer::test
