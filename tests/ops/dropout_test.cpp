#include "ops/dropout.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "ops/kernels/kernels.h"
#include "ops/reference.h"
#include "ops/runtime/philox_tensor.h"

namespace transnormer::ops {
namespace {

const DropoutKey kKey{.seed = 7, .update = 3, .layer = 2, .site = 1, .first_sample = 40};

TEST(Dropout, MaskIsTheGeneratorsWordOfEachElement) {
  constexpr double p = 0.3;
  const at::Tensor mask = dropout_mask(3, 203, p, kKey, at::kCPU);
  const PhiloxKey key = transnormer::philox_key(kKey.seed, kKey.update, kKey.layer, kKey.site);
  const auto data = mask.accessor<float, 2>();
  for (std::int64_t sample = 0; sample < 3; ++sample) {
    for (std::int64_t e = 0; e < 203; ++e) {
      const PhiloxWords words = philox4x32(
          key, {static_cast<std::uint32_t>(e / 4), 0, static_cast<std::uint32_t>(40 + sample), 0});
      const bool kept = philox_uniform(words[static_cast<std::size_t>(e % 4)]) >= p;
      ASSERT_EQ(data[sample][e], kept ? static_cast<float>(1 / (1 - p)) : 0.F);
    }
  }
}

TEST(Dropout, TensorFormMakesTheSameBitsAsEveryKernel) {
  const DropoutKey key{.seed = 1ULL << 63,
                       .update = 1LL << 40,
                       .layer = -1,
                       .site = 0,
                       .first_sample = (1LL << 33) - 1};
  constexpr std::int64_t elements = 1003;
  const at::Tensor expected = dropout_mask_of(philox_bits(2, elements, key, at::kCPU), 0.1);
  for (const auto* const* k = kernels::all_kernels(); *k != nullptr; ++k) {
    for (std::int64_t sample = 0; sample < 2; ++sample) {
      const at::Tensor mask = at::full({elements}, NAN);
      (*k)->dropout_mask(kernel_mask(key, 0.1, sample, 0), mask.mutable_data_ptr<float>(),
                         elements);
      EXPECT_TRUE(at::equal(mask, expected[sample])) << (*k)->name;
      const at::Tensor part = at::full({100}, NAN);
      (*k)->dropout_mask(kernel_mask(key, 0.1, sample, 17), part.mutable_data_ptr<float>(), 100);
      EXPECT_TRUE(at::equal(part, expected[sample].slice(0, 17, 117))) << (*k)->name;
    }
  }
}

TEST(Dropout, CountersCarryIntoTheirHighHalf) {
  const std::int64_t first = (4LL << 32) - 20;
  const at::Tensor element = at::arange(first, first + 40, at::kLong);
  const at::Tensor expected =
      dropout_mask_of(philox_bits_at(at::zeros({1}, at::kLong), element, kKey), 0.5);
  for (const auto* const* k = kernels::all_kernels(); *k != nullptr; ++k) {
    const at::Tensor mask = at::full({40}, NAN);
    (*k)->dropout_mask(kernel_mask(kKey, 0.5, 0, first), mask.mutable_data_ptr<float>(), 40);
    EXPECT_TRUE(at::equal(mask, expected)) << (*k)->name;
  }
}

TEST(Dropout, KeepsTheToldShare) {
  for (const double p : {0.1, 0.5, 0.9}) {
    const at::Tensor mask = dropout_mask(4, 100000, p, kKey, at::kCPU);
    EXPECT_NEAR((mask > 0).to(at::kDouble).mean().item<double>(), 1 - p, 4e-3);
    EXPECT_NEAR(mask.mean().item<double>(), 1, 4e-2);
  }
}

TEST(Dropout, DiffersByEveryPartOfItsKey) {
  const auto mask = [](DropoutKey key) { return dropout_mask(1, 256, 0.5, key, at::kCPU); };
  const at::Tensor base = mask(kKey);
  for (const DropoutKey& other :
       {DropoutKey{8, 3, 2, 1, 40}, DropoutKey{7, 4, 2, 1, 40}, DropoutKey{7, 3, 3, 1, 40},
        DropoutKey{7, 3, 2, 2, 40}, DropoutKey{7, 3, 2, 1, 41}}) {
    const double same = base.eq(mask(other)).to(at::kDouble).mean().item<double>();
    EXPECT_NEAR(same, 0.5, 0.15);
  }
}

TEST(Dropout, DoesNotDependOnTheSplitIntoMicroBatches) {
  const at::Tensor x = normal({6, 5, 33}, 1);
  DropoutKey later = kKey;
  later.first_sample += 4;
  const at::Tensor whole = dropout(x, 0.2, kKey);
  EXPECT_TRUE(at::equal(whole.slice(0, 0, 4), dropout(x.slice(0, 0, 4), 0.2, kKey)));
  EXPECT_TRUE(at::equal(whole.slice(0, 4), dropout(x.slice(0, 4), 0.2, later)));
}

// Rows that are no multiple of four, so that parts begin inside a group of the generator.
TEST(Dropout, OfAPartOfASampleIsThatOfItsPlaceInTheWhole) {
  const at::Tensor x = normal({3, 12, 7}, 1);
  for (const auto type : {at::kFloat, at::kDouble}) {  // by kernels and by tensor operations
    const at::Tensor whole = dropout(x.to(type), 0.3, kKey);
    for (std::int64_t first = 0; first < 12; first += 3) {
      DropoutKey key = kKey;
      key.first_element = first * 7;
      const at::Tensor part = x.slice(1, first, first + 3).to(type);
      EXPECT_TRUE(at::equal(dropout(part, 0.3, key), whole.slice(1, first, first + 3)));
    }
  }
}

TEST(Dropout, ScalesWhatItKeepsAndItsGradientByTheSameMask) {
  for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble}) {
    // Longer than one stretch of a thread, and no multiple of a vector.
    const at::Tensor x = leaf(normal({2, 20001}, 1).to(type));
    const at::Tensor g = normal({2, 20001}, 2).to(type);
    const at::Tensor mask = dropout_mask(2, 20001, 0.2, kKey, at::kCPU);
    const at::Tensor y = dropout(x, 0.2, kKey);
    torch::autograd::backward({y}, {g});
    EXPECT_TRUE(at::equal(y, (x.detach().to(at::kFloat) * mask).to(type)));
    EXPECT_TRUE(at::equal(x.grad(), (g.to(at::kFloat) * mask).to(type)));
  }
}

TEST(Dropout, OfZeroIsTheInputItself) {
  const at::Tensor x = normal({2, 3}, 1);
  EXPECT_TRUE(dropout(x, 0, kKey).is_same(x));
}

}  // namespace
}  // namespace transnormer::ops
