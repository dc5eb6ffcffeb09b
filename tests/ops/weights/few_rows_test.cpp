#include "ops/weights/few_rows.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "ops/kernels/step.h"
#include "ops/reference.h"
#include "ops/runtime/kernel_view.h"
#include "ops/weights/linear.h"

namespace transnormer::ops {
namespace {

// x W^T + bias by loops in double.
std::vector<double> reference(const at::Tensor& x, const at::Tensor& weight,
                              const at::Tensor& bias) {
  const std::vector<double> a = values(x), w = values(weight), b = values(bias);
  const auto in = static_cast<std::size_t>(weight.size(1));
  std::vector<double> y;
  for (std::size_t row = 0; row < a.size() / in; ++row) {
    for (std::size_t o = 0; o < w.size() / in; ++o) {
      double sum = b[o];
      for (std::size_t i = 0; i < in; ++i) {
        sum += a[row * in + i] * w[o * in + i];
      }
      y.push_back(sum);
    }
  }
  return y;
}

class FewRows : public testing::TestWithParam<at::ScalarType> {
 protected:
  [[nodiscard]] at::Tensor some(at::IntArrayRef sizes, std::uint64_t seed) const {
    return normal(sizes, seed).to(GetParam());
  }
  const double tolerance = GetParam() == at::kFloat ? 2e-6 : 0x1p-8;
};

TEST_P(FewRows, AgreeWithLoopsForEveryNumberOfRows) {
  for (const auto& [in, out] : {std::pair{1, 1}, {7, 5}, {33, 17}, {64, 48}, {341, 130}}) {
    const at::Tensor weight = some({out, in}, 1), bias = some({out}, 2);
    for (const std::int64_t rows : {1, 2, 3, 4, 5, 7, 8, 11, 15, 16, 17, 33, 40, 64}) {
      if (rows > kernels::kFewRows && GetParam() != at::kFloat) {
        continue;
      }
      const at::Tensor x = some({rows, in}, 3);
      ASSERT_TRUE(few_rows_fit(x, weight));
      const at::Tensor y = few_rows_product(x, weight, bias);
      ASSERT_EQ(y.scalar_type(), GetParam());
      EXPECT_LT(distance(y, reference(x, weight, bias)), tolerance)
          << in << ' ' << out << ' ' << rows;
      EXPECT_LT(distance(few_rows_product(x, weight, {}), reference(x, weight, at::zeros({out}))),
                tolerance);
    }
  }
}

TEST_P(FewRows, AgreeWithLoopsForEveryInstructionSet) {
  const at::Tensor x = some({7, 75}, 1), weight = some({50, 75}, 2), bias = some({50}, 3);
  for (const auto* const* k = kernels::all_kernels(); *k != nullptr; ++k) {
    const at::Tensor y = at::full({7, 50}, NAN, x.options());
    (*k)->step->product({0, 32, 7, 75, 50}, in(x), in(weight), in(bias), out(y));
    EXPECT_TRUE(y.slice(1, 32).isnan().all().item<bool>()) << (*k)->name;
    (*k)->step->product({32, 50, 7, 75, 50}, in(x), in(weight), in(bias), out(y));
    EXPECT_LT(distance(y, reference(x, weight, bias)), tolerance) << (*k)->name;
  }
}

TEST_P(FewRows, AreEachTheSameBitsAlone) {
  const at::Tensor x = some({16, 75}, 1), weight = some({50, 75}, 2), bias = some({50}, 3);
  for (std::int64_t rows = 1; rows <= 16; ++rows) {
    const at::Tensor together = few_rows_product(x.narrow(0, 0, rows), weight, bias);
    for (std::int64_t row = 0; row < rows; ++row) {
      EXPECT_TRUE(at::equal(few_rows_product(x.narrow(0, row, 1), weight, bias)[0], together[row]))
          << row << " of " << rows;
    }
  }
}

TEST_P(FewRows, HaveTheSameBitsOnAnyNumberOfThreads) {
  const int before = at::get_num_threads();
  const at::Tensor x = some({3, 301}, 1), weight = some({2000, 301}, 2);
  at::set_num_threads(1);
  const at::Tensor alone = few_rows_product(x, weight, {});
  at::set_num_threads(3);
  for (int repeat = 0; repeat < 50; ++repeat) {
    EXPECT_TRUE(at::equal(few_rows_product(x, weight, {}), alone));
  }
  at::set_num_threads(before);
}

TEST_P(FewRows, PassOnWhatIsNotANumber) {
  const at::Tensor x = some({2, 40}, 1), weight = some({20, 40}, 2);
  x[1][39] = NAN;
  const at::Tensor y = few_rows_product(x, weight, {});
  EXPECT_TRUE(y[0].isfinite().all().item<bool>());
  EXPECT_TRUE(y[1].isnan().all().item<bool>());
}

INSTANTIATE_TEST_SUITE_P(Types, FewRows, testing::Values(at::kFloat, at::kBFloat16));

TEST(FewRowsFit, OnlyWhatTheKernelsCanRead) {
  const at::Tensor weight = normal({5, 8}, 1);
  EXPECT_TRUE(few_rows_fit(normal({2, 8, 8}, 2), weight));
  EXPECT_FALSE(few_rows_fit(normal({65, 8}, 2), weight));
  EXPECT_FALSE(few_rows_fit(normal({0, 8}, 2), weight));
  EXPECT_FALSE(few_rows_fit(normal({1, 8}, 2).to(at::kHalf), weight.to(at::kHalf)));
  EXPECT_FALSE(few_rows_fit(normal({1, 8}, 2).to(at::kBFloat16), weight));
  EXPECT_FALSE(few_rows_fit(normal({1, 8}, 2), normal({8, 5}, 1).t()));
}

// A row that few rows' kernel makes and one that the library makes among many are the same up to
// rounding; which of the two it is shows only in the bits.
TEST(Linear, TakesFewRowsThroughTheKernelWhereNoGradientIsWanted) {
  const at::NoGradGuard no_gradients;
  for (const auto& [compute, tolerance] :
       {std::pair{at::kFloat, 1e-6}, {at::kBFloat16, 8e-3}, {at::kHalf, 1e-3}}) {
    const at::Tensor x = normal({80, 33}, 1), weight = normal({17, 33}, 2), bias = normal({17}, 3);
    const at::Tensor many = linear(x, weight, bias, compute);
    for (const std::int64_t rows : {1, 16, 17, 64}) {
      const at::Tensor few = linear(x.narrow(0, 0, rows), weight, bias, compute);
      ASSERT_EQ(few.scalar_type(), compute);
      EXPECT_LT(distance(few, many.narrow(0, 0, rows)), tolerance);
    }
    if (compute != at::kHalf) {
      const at::Tensor row = x.narrow(0, 0, 1).to(compute);
      EXPECT_TRUE(at::equal(linear(row, weight, bias, compute),
                            few_rows_product(row, weight.to(compute), bias.to(compute))));
    }
  }
}

}  // namespace
}  // namespace transnormer::ops
